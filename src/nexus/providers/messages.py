"""Messages of requests, as a program has them for a provider, read into neutral ones that are sent as received.

Formats are recognized by features that only one of them has: the form of tool calls, blocks or parts. Messages with
only a role and plain text are read as chat completions, because they mean the same in all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast, get_args

from nexus.errors import BadEvent, BadReply, BadSetting
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.pairing import order_of_results, pair_results, with_distinct_ids
from nexus.providers.received import CallIndex, items_of, mapping, plain_json, text_of
from nexus.providers.turns import joined_turns
from nexus.text.as_received import ReceivedFormat, received_format, set_apart, with_ids_of_parts, with_plain_text
from nexus.types.message import Message, Text, made_ids

_FORMATS: tuple[ReceivedFormat, ...] = get_args(ReceivedFormat)
_ReadItem: TypeAlias = Callable[[Any, CallIndex, str], tuple[Message, ...]]
_READERS: dict[str, _ReadItem] = {
    "openai": openai.received_message,
    "anthropic": anthropic.received_message,
    "gemini": gemini.received_message,
}

_PACKAGES: dict[str, ReceivedFormat] = {
    "openai.types.responses": "responses",
    "openai.types.chat": "openai",
    "anthropic.": "anthropic",
    "google.genai.": "gemini",
}
_CHAT_FIELDS = frozenset(
    {"tool_calls", "function_call", "tool_call_id", "refusal", "audio", "reasoning_content", "name"}
)
_PLAIN_ROLES = frozenset({"user", "assistant", "system", ""})
"""Roles of messages of plain text that chat completions and Anthropic both have; none for neutral messages."""

_CHAT_BLOCKS = frozenset({"image_url", "input_audio", "file"})
_RESPONSES_BLOCKS = frozenset({"input_text", "output_text", "input_image", "input_file"})
_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "search_result"}
    | {"server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "compaction"}
)
_GEMINI_FIELDS = frozenset(
    {"parts", "text", "inline_data", "inlineData", "file_data", "fileData", "function_call", "functionCall"}
    | {"function_response", "functionResponse", "executable_code", "executableCode"}
)


def read_messages(items: Any, provider: ReceivedFormat | None = None, *, model: str = "") -> list[Message]:
    """Return the messages that a program has for a provider: dicts, its package's objects, or a text where it takes one.

    In the same format they are sent as received, in others from their parts.

    Args:
        items: The request's `messages`, `input` (Responses) or `contents` (Gemini).
        provider: `openai` (chat completions), `responses`, `anthropic` or `gemini`; recognized by default.
        model: Author of the assistant's messages, to whom alone their thinking is returned; by default to any model.

    Raises:
        BadEvent: An item is not a message, or the format is ambiguous.
        BadSetting: `provider` is none of the four.
    """
    return as_messages(items, provider, model=model)


def write_messages(messages: Iterable[Message], provider: ReceivedFormat, *, model: str = "") -> list[dict[str, Any]]:
    """Return messages as a program has them for a provider: the inverse of `read_messages`.

    Args:
        messages: Neutral messages, for example `Engine.history`. Those read in this format are as they were received.
        provider: `openai` (chat completions), `responses`, `anthropic` or `gemini`. The last two join messages of one
            role in a row.
        model: Model that the list is for: thinking of others is left out. By default all thinking stays.

    Raises BadSetting if `provider` is none of the four.
    """
    _check_provider(provider)
    match provider:
        case "openai":
            return [item for message in messages for item in openai.fragment(message, model)]
        case "responses":
            items: list[dict[str, Any]] = []
            for message in messages:
                items += openai_responses.fragment(message, model or message.model, is_stored=True)
            return items
        case "anthropic":
            # Without a name it would be for a model that takes no thinking.
            joined = (anthropic.fragment(message, model or message.model or "any") for message in messages)
            return anthropic.with_paired_server_tools(joined_turns([], joined, "content"))
        case "gemini":
            joined = (gemini.fragment(message, model or message.model) for message in messages)
            return joined_turns([], joined, "parts")


def as_messages(
    items: Any, provider: ReceivedFormat | None = None, *, model: str = "", calls: CallIndex | None = None
) -> list[Message]:
    """Return neutral messages for neutral messages, a provider's, or both mixed, as `read_messages` reads them.

    `calls` are the calls of the messages before them, to which those of these messages are added.
    """
    return read_items(items, provider, model=model, calls=calls).messages


class ReadItems(NamedTuple):
    """Items of a list as they were read."""

    messages: list[Message]
    format: ReceivedFormat
    values: list[Any]
    """The items as JSON values; neutral messages as they are."""
    firsts: list[int]
    """Index of the first item of each message; a result that stands before a user's message has a later one."""


def read_items(
    items: Any,
    provider: ReceivedFormat | None = None,
    *,
    model: str = "",
    calls: CallIndex | None = None,
    default: ReceivedFormat = "openai",
    keeps_forms: bool = False,
) -> ReadItems:
    """Return a list's messages and its format; see `as_messages`.

    Args:
        items: The list.
        provider: Its format; recognized by default.
        model: Author of the assistant's messages.
        calls: The calls of the messages before them.
        default: The format of plain roles and texts.
        keeps_forms: Send Anthropic's plain strings as such, and separate user messages as they are; move results behind a
            user's message before it, and tell calls of one id in one message apart.
    """
    _check_provider(provider)
    sources = list_of_items(items, provider)
    try:
        values = [item if isinstance(item, Message) else plain_json(item) for item in sources]
        read_format = provider or detected_format(sources, values, default)
        calls = CallIndex() if calls is None else calls
        messages, firsts = _read(values, read_format, model, calls, keeps_forms=keeps_forms)
        return ReadItems(messages, read_format, values, firsts)
    except BadReply as error:
        hint = "; pass provider= if the format was not recognized"
        if provider:
            hint = ""
        raise BadEvent(
            f"messages not readable: {error} (pass them as the provider's client takes them{hint})"
        ) from error
    except (RecursionError, ValueError) as error:  # a ValueError is a number with thousands of digits
        raise BadEvent("messages not readable: nested too deeply, or a number is too long (shorten them)") from error


def _check_provider(provider: ReceivedFormat | None) -> None:
    if provider is not None and provider not in _FORMATS:
        if isinstance(provider, str):
            name = repr(provider[:80])
        else:
            name = type(provider).__name__
        raise BadSetting(f"provider {name} unknown: use {', '.join(_FORMATS)}")


def list_of_items(items: Any, provider: ReceivedFormat | None) -> list[Any]:
    """Return the items of a request's messages, which may be one item or a text. Raises BadEvent."""
    if isinstance(items, str):
        if provider in ("openai", "anthropic"):
            raise BadEvent(
                f"messages not readable: the format '{provider}' has no plain text (pass a list: "
                '[{"role": "user", "content": text}])'
            )
        if provider == "gemini":
            return [{"role": "user", "parts": [{"text": items}]}]
        return [{"role": "user", "content": items}]
    is_one = isinstance(items, (Message, Mapping)) or hasattr(items, "model_dump")
    if is_one or not isinstance(items, Iterable):
        return [items]
    return [*cast("Iterable[Any]", items)]


def _read(
    values: Sequence[Any], read_format: ReceivedFormat, model: str, calls: CallIndex, *, keeps_forms: bool
) -> tuple[list[Message], list[int]]:
    """Return the messages of the values, and the index of the first value of each."""
    messages = list[Message]()
    firsts = list[int]()
    known_ids = calls.ids
    index = 0
    while index < len(values):
        value = values[index]
        end = index + 1
        if isinstance(value, Message):
            new: tuple[Message, ...] = (value,)
        elif read_format == "responses":  # a reply is several items in a row
            while end < len(values) and openai_responses.are_one_message(values[end - 1], values[end]):
                end += 1
            new = openai_responses.received_messages(values[index:end], model, calls, index)
        else:
            try:
                new = _READERS[read_format](_content(value, read_format), calls, model)
            except BadReply as error:
                raise BadReply(f"message {index}: {error}") from None
            if keeps_forms and read_format == "anthropic":
                new = _with_form(new, mapping(value), calls.last_role)
        calls.add(new)
        messages += (_with_made_ids(message) for message in new)
        firsts += [index] * len(new)
        index = end
    if not keeps_forms:
        return pair_results(messages, known_ids), firsts
    paired = pair_results(with_distinct_ids(messages), known_ids)
    order = order_of_results(paired)
    return [paired[index] for index in order], [firsts[index] for index in order]


def _with_made_ids(message: Message) -> Message:
    """Return a received message with an id in each of its calls, unless it is Gemini's and none of them has one."""
    new_ids = made_ids(message)
    if not new_ids:
        return message
    is_optional = received_format(message) == "gemini" and len(new_ids) == sum(1 for _ in message.calls())
    if is_optional:
        return message
    return with_ids_of_parts(message)


def _with_form(new: tuple[Message, ...], item: dict[str, Any], last_role: str) -> tuple[Message, ...]:
    """Return the messages of one Anthropic item in its own form.

    A plain string is sent as a plain string. A user's message is not joined with the one before it; results are.
    """
    content = text_of(item.get("content"))
    is_plain = item.keys() <= {"role", "content"} or item.get("role") != "system"
    if is_plain and content.strip() and [message.parts for message in new] == [(Text(content),)]:
        new = (with_plain_text(new[0], "anthropic"),)
    if new and new[0].role == "user" and last_role in ("user", "tool"):
        return (set_apart(new[0], "anthropic"), *new[1:])
    return new


def _content(item: Any, read_format: ReceivedFormat) -> Any:
    """Return an item of Gemini's contents, which may be a text or a part alone, as a content."""
    if read_format != "gemini" or "parts" in mapping(item) or "role" in mapping(item):
        return item
    if isinstance(item, str):
        return {"role": "user", "parts": [{"text": item}]}
    if _GEMINI_FIELDS & mapping(item).keys():
        return {"role": "user", "parts": [item]}
    return item


def detected_format(sources: Sequence[Any], values: Sequence[Any], default: ReceivedFormat) -> ReceivedFormat:
    """Return the format of the items. Raises BadReply if they have signs of several."""
    signs: dict[ReceivedFormat, int] = {}
    for index, (source, value) in enumerate(zip(sources, values, strict=True)):
        if isinstance(source, Message):
            continue
        if package := _package(source):
            signs.setdefault(package, index)
        for sign in _signs(value):
            signs.setdefault(sign, index)
    if len(signs) > 1:
        places = ", ".join(f"message {index} is of format {name}" for name, index in signs.items())
        raise BadReply(f"several formats: {places}")
    if signs:
        return next(iter(signs))
    roles = {text_of(mapping(value).get("role")) for value in values}
    if default == "anthropic" and not roles <= _PLAIN_ROLES:
        return "openai"
    return default


def _package(source: object) -> ReceivedFormat | None:
    module = type(source).__module__
    return next((name for package, name in _PACKAGES.items() if module.startswith(package)), None)


def _signs(value: Any) -> Iterator[ReceivedFormat]:
    """Yield the formats of the features that the item has and no other format."""
    fields = mapping(value)
    kind = text_of(fields.get("type"))
    role = text_of(fields.get("role"))
    is_part = not role and not kind and bool(_GEMINI_FIELDS & fields.keys())
    if isinstance(value, str) or "parts" in fields or role == "model" or is_part:
        yield "gemini"
        return
    content = fields.get("content")
    blocks = [mapping(block) for block in items_of(content)]
    kinds = {text_of(block.get("type")) for block in blocks}
    # A reply of Anthropic has this type too, with blocks of its own.
    is_item = kind == "message" and (isinstance(content, str) or "refusal" in kinds)
    if (kind and not role) or is_item or kinds & _RESPONSES_BLOCKS:
        yield "responses"
    if any(map(_is_of_anthropic, blocks)):
        yield "anthropic"
    has_chat_fields = any(map(fields.get, _CHAT_FIELDS)) or role in ("tool", "function")
    if role and (has_chat_fields or kinds & _CHAT_BLOCKS):
        yield "openai"


def _is_of_anthropic(block: dict[str, Any]) -> bool:
    kind = text_of(block.get("type"))
    return kind in _ANTHROPIC_BLOCKS or kind.endswith("_tool_result") or bool(block.get("citations"))
