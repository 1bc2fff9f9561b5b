"""What the three providers' readers share: taking values out of JSON that may have any shape.

A provider's JSON is read loosely, as it comes from files and servers of many versions: a field of the wrong type counts
as missing, what no field of ours can hold goes into the message's `meta`, and only an item that is no message at all
is refused (`BadReply`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from nexus.errors import BadReply
from nexus.types.message import Image, Message, Part, Text

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.ASCII)


class Calls:
    """The tool calls of one conversation, in the order they were read.

    It gives results the name of their tool, and calls and results that came without an id one that is the same at
    every reading: `call_<n>`, where n is the call's place in the conversation.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._open: list[str] = []

    def name_of(self, call_id: str) -> str:
        """The tool that was called under this id; empty if there was no such call."""
        return self._names.get(call_id, "")

    def made_id(self, ahead: int = 0) -> str:
        """The id for a call that has none, when `ahead` calls of the same message stand before it."""
        number = len(self._names) + ahead + 1
        while f"call_{number}" in self._names:
            number += 1
        return f"call_{number}"

    def oldest_open(self, name: str, taken: Sequence[str] = ()) -> str:
        """The id of the first unanswered call of that name in the last message with calls; empty if there is none."""
        return next((i for i in self._open if i not in taken and self._names[i] == name), "")

    def add(self, messages: Sequence[Message]) -> None:
        """Takes note of the calls and results in messages that follow."""
        for message in messages:
            if new := [call.id for call in message.calls()]:
                self._names.update((call.id, call.name) for call in message.calls())
                self._open = new
            answered = {result.call_id for result in message.results()}
            self._open = [call_id for call_id in self._open if call_id not in answered]


ReadOne: TypeAlias = Callable[[Any, Calls], tuple[Message, ...]]


def read_all(items: Sequence[Any], read_one: ReadOne) -> tuple[Message, ...]:
    """All messages of a conversation, each item read with the calls before it known. BadReply names the bad item."""
    calls = Calls()
    found: list[Message] = []
    for index, item in enumerate(items):
        try:
            new = read_one(item, calls)
        except BadReply as error:
            raise BadReply(f"message {index}: {error}") from None
        calls.add(new)
        found += new
    return tuple(found)


def compact_json(value: Any) -> str:
    """JSON text without spaces, key order as received, no ASCII escapes. Bytes become base64."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)


def arguments_text(value: Any) -> str:
    """A call's arguments: text as it was received, anything else as compact JSON; nothing at all is `{}`."""
    if value is None:
        return "{}"
    return value if isinstance(value, str) else compact_json(value)


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_mapping(value: object) -> dict[str, Any] | None:
    """A mapping as a dict, an object of a client's library as what it holds, without nulls; None for anything else."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    dump = getattr(value, "model_dump", None)
    body = dump(mode="json", exclude_none=True) if callable(dump) else None
    return cast("dict[str, Any]", body) if isinstance(body, dict) else None


def items_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """The value if it is text, else empty. A text enumeration gives its plain value."""
    return str(getattr(value, "value", value)) if isinstance(value, str) else ""


def number_of(value: Any) -> int:
    """The value if it is a count of zero or more, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def rest_of(item: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields that are not among the known ones and that say something (not null, not empty)."""
    return {name: value for name, value in item.items() if name not in known and value not in (None, "", [], {})}


def meta_text(*sources: Mapping[str, Any]) -> str:
    """`Message.meta` of everything in the sources; empty text if there is nothing."""
    joined = {name: value for source in sources for name, value in source.items()}
    return compact_json(joined) if joined else ""


def with_meta(meta: str, more: Mapping[str, Any]) -> str:
    """A `Message.meta` with more in it; what is said later wins."""
    return meta_text(json.loads(meta) if meta else {}, more) if more else meta


def data_or_url(url: str, media_type: str = "") -> Image:
    """An image from a URL: base64 data URLs give their data, all others stay a URL."""
    found = _DATA_URL.match(url)
    if found and found[2].lower().endswith(";base64"):
        return Image(found[1] or media_type, data=url[found.end() :])
    return Image(media_type, url=url)


def standard_base64(value: Any) -> str:
    """Base64 in the usual alphabet, from bytes or from either alphabet's text."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    text = text_of(value).replace("-", "+").replace("_", "/")
    return text + "=" * (-len(text) % 4)


def text_part(text: str) -> Iterator[Part]:
    """One text part, or none for empty text."""
    if text:
        yield Text(text)
