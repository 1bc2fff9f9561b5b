"""Repair of a message sequence: every provider accepts the result, whatever the ledger contains.

The repair is a fold over messages with a small state. The repair of a longer history is therefore the repair of the
shorter one plus one step, and a later call extends an earlier one byte for byte. Stored messages are never changed.

Rules:

- A group is an assistant message with all its results, or any other message.
- Results without a call, and second results for a call, are omitted.
- Calls without a result get `[result unavailable: interrupted]` when the conversation continues.
- Ids become unique and safe. Names and arguments take a form that providers accept; arguments that are not a JSON
  object are kept as text in `_unparsed`.
- Messages without visible content are omitted. The first message is a user message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from nexus.context import RepairReport
from nexus.types.message import Image, Message, Note, Part, Text, Thinking, ToolCall, ToolResult, Unknown
from nexus.types.sanitize import arguments_as_object, sanitize_text

INTERRUPTED = "[result unavailable: interrupted]"
STARTS_WITH_ASSISTANT = "[The conversation starts with the assistant.]"
SYSTEM_NOTE = "[System message]"

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")  # OpenAI has refused longer ids
_SAFE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")

_CLOSED, _SUPPLIED = "unanswered call closed", "first message supplied"
_EMPTY = "empty message left out"
_COUNTED_ONCE = (_CLOSED, _SUPPLIED)
"""Changes next to a message. They are not made again when a later piece joins the message."""

ShownMessage: TypeAlias = tuple[Message, bool, bool]
"""A message to show, whether it starts a group, and whether it differs from the stored one and must be recounted."""


@dataclass(slots=True)
class Fold:
    """State of the repair after some messages."""

    waiting: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    """Calls of the open group without a result: stored id to the call as shown."""

    answered: set[str] = field(default_factory=set[str])
    """Stored ids of the open group's calls that have a result."""

    used_ids: dict[str, int] = field(default_factory=dict[str, int])
    """Call ids that the conversation shows, with the number of the last suffix."""

    last_assistant: Message | None = None
    """The last message, if it is an assistant message that a later piece may join."""

    started: bool = False
    changes: Counter[str] = field(default_factory=Counter[str])

    pieces: Message | None = None
    """The last assistant message as stored, with all pieces that were joined to it."""


class NotAppend(Exception):
    """The message belongs into the last one shown, not after it. See `join_last`."""


def repaired(messages: Iterable[Message]) -> tuple[list[Message], RepairReport]:
    """Return the messages in a form that every provider accepts, and a report of the changes.

    Pieces of one message are joined, and open calls get their missing results at the end. A system message becomes a
    user message, so pass the one that opens a conversation separately. Repairing repaired messages changes nothing.
    """
    fold, visible = Fold(), list[Message]()
    last_changes: Counter[str] = Counter()
    for message in messages:
        before = fold.changes.copy()
        try:
            new = [view for view, _, _ in step(fold, message, plain=False)]
        except NotAppend:
            # The joined message is repaired again as a whole, so the changes of its first piece are not counted twice.
            fold.changes = before - last_changes
            before = fold.changes.copy()
            visible.pop()
            new = [join_last(fold, message, plain=False)]
        if new and new[-1].role == "assistant":
            added = fold.changes - before
            last_changes = Counter({change: n for change, n in added.items() if change not in _COUNTED_ONCE})
        visible.extend(new)
    closing = [view for view, _, _ in _close(fold)]
    return [*visible, *closing], RepairReport(dict(+fold.changes))


def step(fold: Fold, message: Message, *, plain: bool) -> list[ShownMessage]:
    """Return the messages to show for the next stored message, and update `fold`.

    `plain` omits thinking and memory notes. Raises NotAppend if the message continues the last assistant message.
    """
    stored, message = message, _clean(fold, message, plain=plain)
    results = tuple(part for part in message.parts if isinstance(part, ToolResult))
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    shown_messages: list[ShownMessage] = []
    if results:
        shown_messages.extend(_answers(fold, message, results))
    if message.role == "assistant":
        shown_messages.extend(_assistant(fold, message, others))
        if shown_messages and shown_messages[-1][0].role == "assistant":
            fold.pieces = stored
    elif others and (message.role != "tool" or _is_visible(others)):
        shown_messages.extend(_user(fold, message, others))
    elif not results:
        fold.changes[_EMPTY] += 1
    return shown_messages


def join_last(fold: Fold, piece: Message, *, plain: bool) -> Message:
    """Join a later piece to the last assistant message, and return that message as it is shown now.

    Call it where `step` raised NotAppend.
    """
    assert fold.pieces is not None
    assert fold.last_assistant is not None
    for call in fold.last_assistant.calls():
        fold.used_ids.pop(call.id, None)
    fold.last_assistant = None
    fold.waiting.clear()
    return step(fold, replace(fold.pieces, parts=(*fold.pieces.parts, *piece.parts)), plain=plain)[-1][0]


def counted_parts(message: Message) -> int:
    """Return the number of parts that count in full. A message that shows fewer than were stored is recounted."""
    return sum(1 for part in message.parts if not _is_optional(part))


def missing_results(fold: Fold) -> list[Message]:
    """Return one message for each result that the open group still lacks; `fold` is unchanged."""
    return [
        Message("tool", (ToolResult(call.id, (Text(INTERRUPTED),), call.name, is_error=True),))
        for call in fold.waiting.values()
    ]


def is_synthetic_result(message: Message) -> bool:
    """Return True if the message only reports missing results, so that no stored message corresponds to it."""
    return all(map(is_interruption, message.results()))


def is_interruption(result: ToolResult) -> bool:
    """Return True for a result that replaces a missing one."""
    return result.is_error and result.content == (Text(INTERRUPTED),)


def preview(fold: Fold, messages: Iterable[Message]) -> list[Message]:
    """Return the messages that a user message or tool results would show next, open calls answered at the end.

    `fold` is unchanged. Results that the open group lacks come first when a user speaks.
    """
    copy = Fold(dict(fold.waiting), set(fold.answered), fold.used_ids, fold.last_assistant, fold.started)
    visible = [view for message in messages for view, _, _ in step(copy, message, plain=False)]
    return [*visible, *missing_results(copy)]


def with_answers(fold: Fold, messages: Iterable[Message]) -> Iterator[int]:
    """Yield the indexes of messages that answer a waiting call first; second results are not shown."""
    waiting = set(fold.waiting)
    for index, message in enumerate(messages):
        answered = waiting & {result.call_id for result in message.results()}
        if answered:
            yield index
        waiting -= answered


def _close(fold: Fold) -> list[ShownMessage]:
    closing = missing_results(fold)
    if closing:
        fold.changes[_CLOSED] += len(closing)
    fold.waiting, fold.answered = {}, set()
    return [(message, False, True) for message in closing]


def _assistant(fold: Fold, message: Message, parts: tuple[Part, ...]) -> list[ShownMessage]:
    images = sum(isinstance(part, Image) for part in parts)
    if images:
        fold.changes["image in an assistant message left out"] += images
    parts = tuple(part for part in parts if not isinstance(part, (Image, Note)))
    continues = fold.last_assistant is not None and bool(message.id) and fold.last_assistant.id == message.id
    if continues and any(not isinstance(part, Thinking) for part in parts):
        raise NotAppend
    if all(isinstance(part, Thinking) for part in parts):
        fold.changes[_EMPTY] += 1
        return []
    shown_messages = _close(fold)
    if not fold.started:
        fold.started = True
        fold.changes[_SUPPLIED] += 1
        shown_messages.append((Message("user", (Text(STARTS_WITH_ASSISTANT),)), True, True))
    parts, altered = _calls(fold, parts)
    view = replace(message, parts=parts) if parts != message.parts else message
    fold.last_assistant = view
    shown_messages.append((view, True, altered))
    return shown_messages


def _user(fold: Fold, message: Message, parts: tuple[Part, ...]) -> list[ShownMessage]:
    dropped = [part for part in parts if isinstance(part, (ToolCall, Thinking))]
    if dropped:
        fold.changes["call or thinking outside an assistant message left out"] += len(dropped)
        parts = tuple(part for part in parts if not isinstance(part, (ToolCall, Thinking)))
    if not _is_visible(parts):
        fold.changes[_EMPTY] += 1
        return []
    shown_messages = _close(fold)
    altered = message.role == "system"
    if altered:
        parts = (Text(SYSTEM_NOTE), *parts)
        fold.changes["system message shown as a user's"] += 1
    view = message if parts == message.parts and message.role == "user" else replace(message, role="user", parts=parts)
    fold.last_assistant, fold.started = None, True
    shown_messages.append((view, True, altered))
    return shown_messages


def _answers(fold: Fold, message: Message, results: tuple[ToolResult, ...]) -> Iterable[ShownMessage]:
    accepted: list[ToolResult] = []
    for result in results:
        call = fold.waiting.pop(result.call_id, None)
        if call is None:
            is_second = result.call_id in fold.answered
            fold.changes["second result left out" if is_second else "result without a call left out"] += 1
            continue
        fold.answered.add(result.call_id)
        same = result.call_id == call.id and result.name == call.name
        accepted.append(result if same else replace(result, call_id=call.id, name=call.name))
    if not accepted:
        return []
    fold.last_assistant = None
    parts = tuple(accepted)
    same = message.role == "tool" and parts == message.parts
    return [(message if same else replace(message, role="tool", parts=parts), False, not same)]


def _calls(fold: Fold, parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], bool]:
    """Return the parts with valid ids, names and arguments, and whether names or arguments changed."""
    valid: list[Part] = []
    altered = False
    for part in parts:
        if not isinstance(part, ToolCall):
            valid.append(part)
            continue
        if part.id in fold.waiting:
            fold.changes["call with the id of another one in its message left out"] += 1
            altered = True
            continue
        name = part.name if _SAFE_NAME.match(part.name) else _safe_name(part.name)
        arguments = arguments_as_object(part.arguments)
        shown_id = _unique(part.id, fold.used_ids)
        if (shown_id, name, arguments) != (part.id, part.name, part.arguments):
            fold.changes["call id, name or arguments made valid"] += 1
            altered = True
        view = ToolCall(shown_id, name, arguments)
        fold.waiting[part.id] = view
        valid.append(view)
    return tuple(valid), altered


def _clean(fold: Fold, message: Message, *, plain: bool) -> Message:
    parts = tuple(part for part in map(_sanitized, message.parts) if not _is_empty(part))
    unknown = sum(isinstance(part, Unknown) for part in message.parts)
    if unknown:
        fold.changes["part of an unknown kind left out"] += unknown
    if plain:
        parts = tuple(part for part in parts if not _is_optional(part))
    return message if parts == message.parts else replace(message, parts=parts)


def _is_optional(part: Part) -> bool:
    return isinstance(part, Thinking) or (isinstance(part, Note) and part.kind == "memory")


def _is_empty(part: Part) -> bool:
    if isinstance(part, (Text, Note)):
        return not part.text.strip()
    if isinstance(part, Image):
        return not (part.data or part.url)
    return isinstance(part, Unknown)


def _is_visible(parts: Iterable[Part]) -> bool:
    return any(isinstance(part, (Text, Image, Note)) for part in parts)


def _sanitized(part: Part) -> Part:
    """Return the part with lone surrogates, which no request body can carry, as U+FFFD."""
    match part:
        case Text(text) | Note(text=text):
            return part if text.isascii() or sanitize_text(text) == text else replace(part, text=sanitize_text(text))
        case ToolResult(content=content):
            if all(not isinstance(item, Text) or item.text.isascii() for item in content):
                return part
            clean = tuple(replace(i, text=sanitize_text(i.text)) if isinstance(i, Text) else i for i in content)
            return part if clean == content else replace(part, content=clean)
        case Thinking(text=text):
            return part if text.isascii() else replace(part, text=sanitize_text(text))
        case _:
            return part


def _safe_name(name: str) -> str:
    safe = _UNSAFE.sub("_", name)[:63]
    return safe if _SAFE_NAME.match(safe) else f"_{safe}"[:64]


def _unique(wanted: str, used_ids: dict[str, int]) -> str:
    """Return a safe id that is new in the conversation, and register it; the second `x` becomes `x_2`."""
    safe = wanted if _SAFE_ID.match(wanted) else (_UNSAFE.sub("_", wanted)[:32] or "call")
    candidate = safe
    while candidate in used_ids:
        used_ids[safe] += 1
        candidate = f"{safe[:32]}_{used_ids[safe]}"
    used_ids[candidate] = 1
    return candidate
