"""Shared parts of the readers of provider JSON, which may have any shape.

JSON comes from files and servers of many versions and is read leniently: a field of the wrong type counts as missing,
fields without a counterpart go into the message's `meta`, and only an item that is not a message at all is rejected
(`BadReply`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from nexus.errors import BadReply
from nexus.text.as_received import ReceivedFormat, with_received
from nexus.text.message_text import unsendable_kind
from nexus.types.message import Image, Message, Part, Role, Text, ToolCall, ToolResult

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII)


class CallIndex:
    """The tool calls of one conversation, in reading order.

    Supplies the tool names of results, and reproducible ids for calls and results without one: `call_<n>`, where n is the
    call's number in the conversation. `id_prefix` replaces `call_`.
    """

    def __init__(self, id_prefix: str = "call_") -> None:
        self._id_prefix = id_prefix
        self._names: dict[str, str] = {}
        self._open: list[str] = []
        self.other_ids = set[str]()
        """Ids of calls that are no function's or custom tool's, in items that only their own format has."""
        self.last_role = ""
        """Role of the last message; empty if there is none."""

    def copy(self) -> CallIndex:
        """Return an index with the same calls, to continue it without changing this one."""
        other = CallIndex(self._id_prefix)
        other._names = dict(self._names)
        other._open = [*self._open]
        other.other_ids = {*self.other_ids}
        other.last_role = self.last_role
        return other

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all calls."""
        return frozenset(self._names)

    def name_of(self, call_id: str) -> str:
        """Return the tool that was called under this id; empty if there was no such call."""
        return self._names.get(call_id, "")

    def made_id(self, preceding: int = 0) -> str:
        """Return the id for a call that has none; `preceding` is the number of calls before it in the same message."""
        number = len(self._names) + preceding + 1
        while f"{self._id_prefix}{number}" in self._names:
            number += 1
        return f"{self._id_prefix}{number}"

    def oldest_open(self, name: str, answered: Sequence[str] = ()) -> str:
        """Return the id of the first unanswered call of that name in the last message with calls; empty if none."""
        return next((i for i in self._open if i not in answered and self._names[i] == name), "")

    def first_open(self, answered: Sequence[str] = ()) -> str:
        """Return the id of the first unanswered call in the last message with calls; empty if none."""
        return next((i for i in self._open if i not in answered), "")

    def add(self, messages: Sequence[Message]) -> None:
        """Add the calls and results of the next messages."""
        for message in messages:
            self.last_role = message.role
            if new := [call.id for call in message.calls()]:
                self._names.update((call.id, call.name) for call in message.calls())
                self._open = new
            answered = {result.call_id for result in message.results()}
            self._open = [call_id for call_id in self._open if call_id not in answered]


def with_made_ids(parts: Sequence[Part], calls: CallIndex) -> tuple[list[Part], list[str]]:
    """Return the parts with an id in each call, and the ids that were made."""
    new_parts = [*parts]
    new_ids = list[str]()
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and not part.id:
            new_ids.append(calls.made_id(len(new_ids)))
            new_parts[index] = replace(part, id=new_ids[-1])
    return new_parts, new_ids


def with_author(messages: Sequence[Message], author: str) -> tuple[Message, ...]:
    """Return messages of which the assistant's are by this model; unchanged without a name."""
    if not author:
        return tuple(messages)
    return tuple(replace(message, model=author) if message.role == "assistant" else message for message in messages)


ReadOne: TypeAlias = Callable[[Any, CallIndex], tuple[Message, ...]]


def read_all(items: Sequence[Any], read_one: ReadOne) -> tuple[Message, ...]:
    """Return all messages of a conversation; each item is read with the calls before it. BadReply names the bad item."""
    calls = CallIndex()
    messages: list[Message] = []
    for index, item in enumerate(items):
        try:
            new = read_one(item, calls)
        except BadReply as error:
            raise BadReply(f"message {index}: {error}") from None
        calls.add(new)
        messages += new
    return tuple(messages)


def read_role_and_content(item: Any, roles: Mapping[str, Role]) -> tuple[dict[str, Any], Role, str | list[Any] | None]:
    """Return a message's fields, its role and its content. Raises BadReply if it is not a message."""
    fields = mapping(item)
    if not fields:
        raise BadReply("not a message: not a JSON object")
    role = roles.get(text_of(fields.get("role")))
    if role is None:
        raise BadReply(f"not a message: 'role' is {fields.get('role')!r}")
    content = fields.get("content")
    if not isinstance(content, (str, list)) and content is not None:
        raise BadReply(f"not a message: 'content' is {type(content).__name__}, neither text nor a list")
    return fields, role, cast("str | list[Any] | None", content)


def split_results(message: Message) -> tuple[Message, ...]:
    """Return a user's message with tool results as a `tool` message and, for its other parts, a `user` message."""
    results = tuple(part for part in message.parts if isinstance(part, ToolResult))
    if not results or message.role != "user":
        return (message,)
    answer = Message("tool", results, id=message.id, meta=message.meta)
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    if not others:
        return (answer,)
    return (answer, Message("user", others, id=f"{message.id}:rest" if message.id else ""))


def compact_json(value: Any) -> str:
    """Return JSON text without spaces, key order as received, no ASCII escapes. Bytes become base64."""
    return _compact.encode(value)


def _encode_other(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return str(value)


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_encode_other)


def arguments_text(value: Any) -> str:
    """Return a call's arguments: text as received, anything else as compact JSON, `{}` for None."""
    if value is None:
        return "{}"
    if isinstance(value, str):
        return value
    return compact_json(value)


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {}


def present_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a JSON object that are not null, in a new dict."""
    return {name: item for name, item in mapping(value).items() if item is not None}


def as_mapping(value: object) -> dict[str, Any] | None:
    """Return a mapping as a dict, a client library's object as its fields without nulls; None for anything else."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    dump = getattr(value, "model_dump", None)
    # Fields of one type for another, as an answer's block among a request's, are a warning in pydantic, and fine here.
    body = None
    if callable(dump):
        body = dump(mode="json", exclude_none=True, warnings=False)
    if isinstance(body, dict):
        return cast("dict[str, Any]", body)
    return None


def plain_json(value: object) -> Any:
    """Return a copy as JSON values, with client libraries' objects as their fields wherever they are; bytes as base64."""
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, (int, float, type(None))):
        return value
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    fields = as_mapping(value)
    if fields is not None:
        return {str(name): plain_json(item) for name, item in fields.items()}
    if isinstance(value, Iterable):
        return [plain_json(item) for item in cast("Iterable[object]", value)]
    return str(value)


_TOOL_ARGUMENTS = ("input", "args", "arguments", "response")


def without_nulls(value: Any) -> Any:
    """Return the value without null fields, which every provider takes as missing; tools' arguments keep theirs."""
    if isinstance(value, list):
        return [without_nulls(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            name: without_nulls(item) if type(item) in (dict, list) and name not in _TOOL_ARGUMENTS else item
            for name, item in fields.items()
            if item is not None
        }
    return value


def items_of(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def list_or_one(value: Any) -> list[Any]:
    """Return the value if it is a list, and an object as a list of one: some servers send a single call like that."""
    if isinstance(value, dict) and value:
        return [value]
    return items_of(value)


def content_items(content: Any) -> list[Any]:
    """Return a message's content as a list, of which a plain text is the only item."""
    if isinstance(content, str):
        return [content]
    return items_of(content)


def text_of(value: Any) -> str:
    """Return the value if it is text, else empty text. A text enumeration gives its plain value."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(getattr(value, "value", value))
    return ""


def number_of(value: Any) -> int:
    """Return the value if it is a count of zero or more, else 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return 0


def with_nulls(item: Any, required: Mapping[str, str]) -> Any:
    """Return an item with the fields that a request must have for its type, as null where a client's object omits them."""
    fields = mapping(item)
    names = required.get(text_of(fields.get("type")), "").split()
    if not names:
        return item
    return {**fields, **{name: None for name in names if name not in fields}}


def as_sent_or_received(
    message: Message,
    provider_format: ReceivedFormat,
    received: list[Any],
    neutral_items: Callable[[], list[Any]],
    *,
    stored: list[Any] | None = None,
) -> Message:
    """Return the message, with its items as received if `neutral_items`, those of its parts, are not the same.

    `stored` is what is sent then, if `received` is only for the comparison.
    """
    try:
        neutral = neutral_items()
        is_same = received == neutral or without_nulls(received) == without_nulls(neutral)
    except (ValueError, RecursionError):  # arguments that are no JSON object have no neutral item
        is_same = False
    if is_same and not any(map(unsendable_kind, message.parts)):
        return message
    return with_received(message, provider_format, received if stored is None else stored)


def rest_of(item: Mapping[str, Any], known_fields: frozenset[str]) -> dict[str, Any]:
    """Return the other fields, without null and empty ones."""
    return {name: value for name, value in item.items() if name not in known_fields and value not in (None, "", [], {})}


def meta_text(*sources: Mapping[str, Any]) -> str:
    """Return `Message.meta` with everything in the sources; empty text if there is nothing."""
    joined = {name: value for source in sources for name, value in source.items()}
    if joined:
        return compact_json(joined)
    return ""


def with_meta(meta: str, more: Mapping[str, Any]) -> str:
    """Return a `Message.meta` with more in it; later values win."""
    if more:
        return meta_text(json.loads(meta) if meta else {}, more)
    return meta


def data_or_url(url: str, media_type: str = "") -> Image:
    """Return an image from a URL: base64 data URLs give their data, all others stay a URL."""
    match = _DATA_URL.match(url)
    if match and match[2].lower().endswith(";base64"):
        parameters = match[2][: -len(";base64")]
        return Image(f"{match[1]}{parameters}" or media_type, data=url[match.end() :])
    return Image(media_type, url=url)


def standard_base64(value: Any) -> str:
    """Return base64 in the standard alphabet, from bytes or from text in either alphabet."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    text = text_of(value).replace("-", "+").replace("_", "/")
    return text + "=" * (-len(text) % 4)


def text_part(text: str) -> Iterator[Text]:
    """Yield one text part, or none for empty text."""
    if text:
        yield Text(text)
