"""Messages as a provider's format had them, with features that neutral parts lack: files, citations, names, item ids.

`Message.received` is JSON text with the format's name and the items. It is set only where the neutral parts would be sent
otherwise in that format. There it is sent instead of them; every other format is sent the parts. The data of the message's
own images is not in it: `images` has the place of each, and the text there is completed when it is read. A message whose
content is one plain string where the format has blocks is marked by `text` instead, so that the text is stored once.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from nexus.text.frames.escaping import escape
from nexus.text.message_text import RENDER_VERSION, visible_parts
from nexus.types.decoding import decodable
from nexus.types.message import (
    Image,
    Message,
    Note,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    with_neutral_parts,
    with_parts,
)
from nexus.types.sanitize import sanitize_text

ReceivedFormat: TypeAlias = Literal["openai", "responses", "anthropic", "gemini"]
"""Formats that messages are read from and sent in: the three of token counts, and OpenAI's Responses API."""

Item: TypeAlias = dict[str, Any]
_Place: TypeAlias = list[str | int]


class _ReceivedForm(msgspec.Struct, omit_defaults=True):
    format: str
    items: list[Item] = []
    images: list[_Place] = []
    text: bool = False
    is_separate: bool = False


class _Format(msgspec.Struct):
    format: str


_decode = msgspec.json.Decoder(decodable(_ReceivedForm)).decode
_decode_format = msgspec.json.Decoder(decodable(_Format)).decode


def with_received(message: Message, provider_format: ReceivedFormat, items: list[Item]) -> Message:
    """Return the message with its items in a provider's format, JSON values that must not be changed afterwards.

    A message whose items have no JSON form is returned unchanged.
    """
    stored = items
    places = list[_Place]()
    if data := [image.data for image in images_with_data(message)]:
        stored = cast("list[Item]", _copy(items))
        strings = [(place, text) for place, text in _strings(stored, []) if len(text) >= len(min(data, key=len))]
        for text in data:
            place = next((place for place, string in strings if string.endswith(text)), _Place())
            if place:
                strings = [(other, string) for other, string in strings if other != place]
                _set(stored, place, _get(stored, place)[: -len(text)])
            places.append(place)
    fields = {"format": provider_format, "items": stored, **({"images": places} if any(places) else {})}
    try:
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return message
    return replace(message, received=text)


def with_plain_text(message: Message, provider_format: ReceivedFormat) -> Message:
    """Return a message of one text that is sent as a plain string in this format."""
    return replace(message, received=f'{{"format":"{provider_format}","items":[],"text":true}}')


def set_apart(message: Message, provider_format: ReceivedFormat) -> Message:
    """Return a message that is not joined with the one before it, although both have the same role in this format.

    A message whose parts say all of it gets its items, `[]`, which is read as its parts.
    """
    received = message.received or f'{{"format":"{provider_format}","items":[]}}'
    return replace(message, received=f'{received[:-1]},"is_separate":true}}')


def is_apart(message: Message, provider_format: ReceivedFormat) -> bool:
    """Return True if the message was received as one of its own, behind another one of the same role."""
    if not message.received.endswith(',"is_separate":true}'):
        return False
    return received_format(message) == provider_format


def received_format(message: Message) -> str:
    """Return the format that the message was received in; empty if its parts say all of it, or it is unreadable."""
    if not message.received:
        return ""
    try:
        return _decode_format(sanitize_text(message.received)).format
    except msgspec.MsgspecError:
        return ""


def received_items(
    message: Message,
    provider_format: ReceivedFormat,
    *,
    with_thinking: bool = True,
    with_images: bool = True,
    render: int = RENDER_VERSION,
) -> list[Item] | None:
    """Return new items to send in this format; None if the message has none, so that its parts are sent.

    Text that no body can carry is replaced. Notes come first, and text next to them is escaped, as with neutral parts.
    Thinking is left out without `with_thinking`, or if the message no longer has any.
    """
    if not message.received:
        return None
    try:
        received = _decode(sanitize_text(message.received))
    except msgspec.MsgspecError:
        return None
    images = [*images_with_data(message)]
    if received.format != provider_format or (received.images and len(received.images) != len(images)):
        return None
    if received.text:
        return _plain_text(message, provider_format)
    if not received.items:
        return None
    for place, image in zip(received.images, images, strict=False):
        if place and with_images:
            _set(received.items, place, _get(received.items, place) + image.data)
    items = received.items
    if not (with_thinking and any(isinstance(part, Thinking) for part in message.parts)):
        items = _without_thinking(items, provider_format, is_author=with_thinking, render=render)
    notes = [part for part in message.parts if isinstance(part, Note)]
    if any(note.text for note in notes):
        return _with_notes(items, notes, provider_format)
    return items


def with_changed_images(message: Message, change: Callable[[Image, ToolResult | None], Image | Text]) -> Message:
    """Return the message with each image changed, also in results and in the form in which it was received.

    If no image changes, the same object is returned. If the received form has no place for a new part, it is removed,
    and the message is sent from its parts.

    Args:
        message: The message.
        change: Gets each image that has data or an address, and the result that contains it; returns the image or text
            to use instead.
    """
    changes: list[tuple[Image, Image | Text]] = []

    def changed(part: Part, result: ToolResult | None = None) -> Part:
        if isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
            content = tuple(changed(item, part) for item in part.content)
            is_same = all(map(operator.is_, content, part.content))
            if is_same:
                return part
            return replace(part, content=cast("tuple[Text | Image, ...]", content))
        if not isinstance(part, Image) or not (part.data or part.url):
            return part
        changes.append((part, new := change(part, result)))
        return new

    parts = tuple(map(changed, message.parts))
    if all(old is new for old, new in changes):
        return message
    text = ""
    if message.received:
        text = _with_changed_places(message.received, changes)
    return with_neutral_parts(message, parts, received=text)


def _with_changed_places(text: str, changes: list[tuple[Image, Image | Text]]) -> str:
    """Return a message's received form with changed images; empty if it has no place for one of them."""
    try:
        received = _decode(sanitize_text(text))
    except msgspec.MsgspecError:
        return ""
    with_data = [pair for pair in changes if pair[0].data]
    is_placed = len(received.images) == len(with_data) and all(old is new for old, new in changes if not old.data)
    if not is_placed or not all(
        place for place, (old, new) in zip(received.images, with_data, strict=True) if old is not new
    ):
        return ""
    places: list[_Place] = []
    for place, (old, new) in zip(received.images, with_data, strict=True):
        if isinstance(new, Image):
            places.append(place)
            if old.media_type != new.media_type:
                _set_media_type(received.items, place, new.media_type)
        elif not _set_text(received.items, place, new.text, received.format):
            return ""
    fields: dict[str, Any] = {"format": received.format, "items": received.items}
    if any(places):
        fields["images"] = places
    if received.is_separate:
        fields["is_separate"] = True
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _set_media_type(items: list[Item], place: _Place, media_type: str) -> None:
    """Set the type next to an image's data, or in the address that its data completes."""
    if place[-1] != "data":
        _set(items, place, f"data:{media_type};base64,")
        return
    key = "media_type"
    if place[-2] == "inline_data":
        key = "mime_type"
    _set(items, [*place[:-1], key], media_type)


_TEXT_BLOCKS: dict[str, dict[str, str]] = {"responses": {"type": "input_text"}, "gemini": {}}


def _set_text(items: list[Item], place: _Place, text: str, provider_format: str) -> bool:
    """Put a text block in the place of an image's; return False if no text may be there."""
    last = max(index for index, step in enumerate(place) if isinstance(step, int))
    if last == 0 or place[last - 1] not in ("content", "output", "parts") or "function_response" in place:
        return False
    _get(items, place[:last])[place[last]] = {**_TEXT_BLOCKS.get(provider_format, {"type": "text"}), "text": text}
    return True


def _plain_text(message: Message, provider_format: ReceivedFormat) -> list[Item] | None:
    """Return the message with its text as a plain string; None if it has other parts by now."""
    notes = [part for part in message.parts if isinstance(part, Note)]
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    if len(texts) != 1 or len(texts) + len(notes) != len(message.parts):
        return None
    item = {"role": message.role if message.role in ("assistant", "system") else "user", "content": texts[0]}
    if any(note.text for note in notes):
        return _with_notes([item], notes, provider_format)
    return [item]


def with_call_ids(message: Message, ids: Mapping[str, str]) -> Message:
    """Return the message with other ids of calls, in its calls and results; the same object if it has none of them."""
    parts = tuple(_with_call_id(part, ids) for part in message.parts)
    if parts == message.parts:
        return message
    return with_ids_of_parts(with_neutral_parts(message, parts))


OPENAI_ID_CHARS = 40
"""Longest id of a call that chat completions take."""


def with_openai_ids(message: Message) -> Message:
    """Return the message with ids of calls that OpenAI takes. A context of Anthropic's models may have longer ones.

    A longer one becomes its beginning and a hash, so that a call and its result have the same.
    """
    ids: dict[str, str] = {}
    for part in message.parts:
        call_id = ""
        if isinstance(part, ToolCall):
            call_id = part.id
        elif isinstance(part, ToolResult):
            call_id = part.call_id
        if len(call_id) > OPENAI_ID_CHARS:
            ids[call_id] = f"{call_id[:23]}_{hashlib.sha256(call_id.encode()).hexdigest()[:16]}"
    if not ids:
        return message
    return with_call_ids(message, ids)


def _with_call_id(part: Part, ids: Mapping[str, str]) -> Part:
    match part:
        case ToolCall(id=call_id) if call_id in ids:
            return replace(part, id=ids[call_id])
        case ToolResult(call_id=call_id) if call_id in ids:
            return replace(part, call_id=ids[call_id])
        case _:
            return part


def with_ids_of_parts(message: Message) -> Message:
    """Return the message with the ids of its calls and results in the items that it was received as, too.

    Items without a place for each of them are dropped, so that the parts are sent.
    """
    if not message.received:
        return message
    try:
        received = _decode(sanitize_text(message.received))
    except msgspec.MsgspecError:
        return with_parts(message, message.parts)
    parts = (part for part in message.parts if isinstance(part, (ToolCall, ToolResult)))
    ids = [part.id if isinstance(part, ToolCall) else part.call_id for part in parts]
    if not received.items:
        return message
    places = [*_places_of_ids(received)]
    if len(places) != len(ids):
        return with_parts(message, message.parts)
    for (fields, key), call_id in zip(places, ids, strict=True):
        fields[key] = call_id
    return replace(
        message, received=json.dumps(msgspec.to_builtins(received), ensure_ascii=False, separators=(",", ":"))
    )


def _places_of_ids(received: _ReceivedForm) -> Iterator[tuple[Item, str]]:
    """Yield the object and the key of each id of a call in received items."""
    match received.format:
        case "openai":
            for item in received.items:
                yield from ((call, "id") for call in _objects(item.get("tool_calls")))
                if item.get("role") == "tool":
                    yield item, "tool_call_id"
        case "responses":
            yield from ((item, "call_id") for item in received.items if item.get("type") in _RESPONSES_CALLS)
        case "anthropic":
            keys = {"tool_use": "id", "tool_result": "tool_use_id"}
            blocks = [block for item in received.items for block in _objects(item.get("content"))]
            yield from ((block, keys[block["type"]]) for block in blocks if block.get("type") in keys)
        case _:
            parts = [part for item in received.items for part in _objects(item.get("parts"))]
            objects = [part[key] for part in parts for key in ("function_call", "function_response") if key in part]
            yield from ((fields, "id") for fields in objects)


_RESPONSES_CALLS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def _objects(value: Any) -> Iterable[Item]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Item", item) for item in items if isinstance(item, dict)]


def images_with_data(message: Message) -> Iterator[Image]:
    """Yield the images with data among the parts, also in results."""
    for part in message.parts:
        if isinstance(part, ToolResult):
            images = part.content
        else:
            images = (part,)
        yield from (image for image in images if isinstance(image, Image) and image.data)


def with_changed_calls(message: Message, parts: tuple[Part, ...]) -> Message:
    """Return the message with its calls changed, which is sent from its parts.

    A chat completion with reasoning is sent as received, with the calls of the parts. Other formats have their thinking
    among the parts.
    """
    before, after = ([p for p in listed if not isinstance(p, ToolCall)] for listed in (message.parts, parts))
    is_same = before == after and len(message.parts) == len(parts)
    if is_same and has_reasoning(message):
        return with_neutral_parts(message, parts)
    return with_parts(message, parts)


_REASONING_SIGNS = ('"reasoning', '"extra_content"', '"thinking"')


def has_reasoning(message: Message) -> bool:
    """Return True if the message may be a chat completion with thinking or signatures, which return to its model."""
    return any(sign in message.received for sign in _REASONING_SIGNS) and received_format(message) == "openai"


REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""Fields of a chat completion's message with the model's thinking, as compatible servers name them."""

REASONING_RENDER = 7
"""Render version from which on they return to the model that wrote them alone."""


def reasoning_json(message: Message) -> str:
    """Return the JSON of a chat completion's fields with thinking; empty text without any."""
    if not has_reasoning(message):
        return ""
    items = _decode(sanitize_text(message.received)).items
    fields = [{name: value for name, value in item.items() if name in REASONING_FIELDS} for item in items]
    blocks = [part for item in items for part in _content_parts(item) if _is_thinking(part)]
    return json.dumps([*fields, *blocks], ensure_ascii=False, separators=(",", ":"))


def _content_parts(item: Item) -> list[Any]:
    content = item.get("content")
    if isinstance(content, list):
        return cast("list[Any]", content)
    return []


def _is_thinking(part: Any) -> bool:
    return isinstance(part, dict) and cast("Item", part).get("type") == "thinking"


def _without_reasoning(item: Item, *, is_author: bool) -> Item:
    """Return a chat completion's message without thinking.

    Its author may refuse calls that lack the field (DeepSeek, Kimi), so it stays, empty. Other models get no signatures.
    """
    others = {name: value for name, value in item.items() if name not in REASONING_FIELDS}
    if parts := _content_parts(item):
        others["content"] = [part for part in parts if not _is_thinking(part)] or None
    if is_author:
        if "reasoning_content" in item and "tool_calls" in item:
            return {**others, "reasoning_content": ""}
        return others
    others.pop("extra_content", None)
    if "tool_calls" in item:
        others["tool_calls"] = [{k: v for k, v in call.items() if k != "extra_content"} for call in item["tool_calls"]]
    return others


def _without_thinking(
    items: list[Item], provider_format: ReceivedFormat, *, is_author: bool, render: int
) -> list[Item]:
    match provider_format:
        case "openai" if render >= REASONING_RENDER:
            return [_without_reasoning(item, is_author=is_author) for item in items]
        case "openai":
            return [{k: v for k, v in item.items() if k not in ("reasoning_content", "reasoning")} for item in items]
        case "responses":
            return [item for item in items if item.get("type") != "reasoning"]
        case "anthropic":
            return [
                {**item, "content": [b for b in item["content"] if b.get("type") not in THINKING_BLOCKS]}
                for item in items
            ]
        case "gemini":
            return [
                {**item, "parts": [_unsigned(part) for part in item["parts"] if not part.get("thought")]}
                for item in items
            ]


THINKING_BLOCKS = ("thinking", "redacted_thinking")
"""Anthropic's blocks with a model's thinking."""


def _unsigned(part: Item) -> Item:
    return {name: value for name, value in part.items() if name != "thought_signature"}


def _with_notes(items: list[Item], notes: list[Note], provider_format: ReceivedFormat) -> list[Item]:
    """Return the items of a user's message with its notes as first text: joined with a plain text, else a block before."""
    first = items[0] if items else {}
    key = "parts" if provider_format == "gemini" else "content"
    content = first.get(key)
    texts = (Text(content),) if isinstance(content, str) else ()
    (joined,) = visible_parts(Message("user", (*notes, *texts)))
    text = joined.text if isinstance(joined, Text) else ""
    if texts:
        return [{**first, key: text}, *items[1:]]
    block = {**_TEXT_BLOCKS.get(provider_format, {"type": "text"}), "text": text}
    others = [_escaped(item) for item in items]
    if isinstance(content, list):
        return [{**others[0], key: [block, *others[0][key]]}, *others[1:]]
    return [{"role": "user", key: [block]}, *others]


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return [_escaped(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in cast("Item", value).items()}
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in cast("Item", value).items()}
    return value


def _strings(value: Any, place: _Place) -> Iterator[tuple[_Place, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _strings(item, [*place, index])
    elif isinstance(value, dict):
        for name, item in cast("Item", value).items():
            yield from _strings(item, [*place, name])


def _get(value: Any, place: _Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _set(value: Any, place: _Place, text: str) -> None:
    _get(value, place[:-1])[place[-1]] = text
