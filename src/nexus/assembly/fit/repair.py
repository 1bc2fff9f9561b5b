"""Repair of a message sequence: every provider accepts the result, whatever the ledger contains.

The repair is a fold over messages with a small state. The repair of a longer history is therefore the repair of the
shorter one plus one step, and a later call extends an earlier one byte for byte. Stored messages are never changed.

Rules:

- A group is an assistant message with all its results, or any other message. Assistant messages in a row whose calls
  still wait are one group, as in logs with one message per call.
- Calls without a result get `[no result recorded]` when the conversation continues. A result that comes later is shown
  as text where it stands, because a provider takes it directly behind its call only and the prefix must not change.
- A result before its call moves behind it. Results without a call, and second results for a call, are omitted.
- Ids become unique and safe. Names and arguments take a form that providers accept; arguments that are not a JSON
  object are kept as text in `_unparsed`.
- Messages without visible content are omitted. The first message is a user message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace as replace_fold
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from nexus.assembly.fit.call_names import safe_id, safe_name, short_name
from nexus.assembly.fit.fold import Fold
from nexus.assembly.fit.images import with_images_for_all
from nexus.context import RepairReport
from nexus.errors import BadEvent
from nexus.text.as_received import REASONING_RENDER, with_call_ids, with_changed_calls
from nexus.text.message_text import SYSTEM_NOTE, kind_line, unsendable_kind, with_unsendable_as_notes
from nexus.types.history import UNANSWERED
from nexus.types.message import (
    Image,
    Message,
    Note,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    custom_calls,
    is_program_output,
    with_neutral_parts,
    with_parts,
)
from nexus.types.sanitize import arguments_as_object, sanitize_text
from nexus.types.validation import checked

NO_RESULT = "[no result recorded]"
INTERRUPTED = "[result unavailable: interrupted]"
"""The text in place of a missing result up to render version 2."""

LATE_RESULTS_RENDER = 3
"""Render version from which on late and early results are shown. Earlier ones omit them."""

SYSTEM_RENDER = 7
"""Render version from which on system messages of a provider's list keep their role where a provider takes them."""

LONG_IDS_RENDER = 7
"""Render version from which on calls keep long ids for Anthropic, which takes them."""

STORED_IDS_RENDER = 5  # from this render version on, a second result has the stored id of a call, not its id as shown
LATE_SOURCE = "nexus:late-result"
"""Source of a message that shows late results."""

STARTS_WITH_ASSISTANT = "[The conversation starts with the assistant.]"

_CLOSED = "unanswered call closed"
_SUPPLIED = "first message supplied"
_EMPTY = "empty message left out"
_NO_CALL = "result without a call left out"
_COUNTED_ONCE = (_CLOSED, _SUPPLIED)
"""Changes next to a message. They are not made again when a later piece joins the message."""

ShownMessage: TypeAlias = tuple[Message, bool, bool]
"""A message to show, whether it starts a group, and whether it differs from the stored one and must be recounted."""


class NotAppend(Exception):
    """The message belongs into the last one shown, not after it. See `join_last`."""


def repaired(messages: Iterable[Message]) -> tuple[list[Message], RepairReport]:
    """Return the messages in a form that every provider accepts, and a report of the changes.

    Pieces of one message are joined, and open calls get their missing results at the end. A system message becomes a
    user message, so pass the one that opens a conversation separately. Repairing repaired messages changes nothing. Raises
    BadEvent for anything but messages.
    """
    try:
        messages = checked([*messages], list[Message])
    except (TypeError, ValueError) as error:
        raise BadEvent(f"messages invalid: {error} (make them with nexus.user(…), assistant(…) and tool(…))") from error
    fold = Fold()
    visible = list[Message]()
    last_changes: Counter[str] = Counter()
    for message in map(with_images_for_all, messages):
        before = fold.changes.copy()
        try:
            new = [view for view, _, _ in step(fold, message, plain=False)]
        except NotAppend:
            # The joined message is repaired again as a whole, so the changes of its first piece are not counted twice.
            fold.changes = before - last_changes
            before = fold.changes.copy()
            visible.pop()
            new = [view for view, _, _ in join_last(fold, message, plain=False)]
        if new and new[-1].role == "assistant":
            added = fold.changes - before
            last_changes = Counter({change: n for change, n in added.items() if change not in _COUNTED_ONCE})
        visible.extend(new)
    closing = [view for view, _, _ in _close(fold)]
    return [*visible, *closing], RepairReport(dict(+fold.changes))


def step_text(fold: Fold, message: Message) -> bool:
    """Update `fold` if the next message has only text and is shown as stored, as most messages of long sessions are.

    A user's message may also have notes about the moment. Return False for every other message, with `fold` unchanged:
    `step` shows it.
    """
    if fold.waiting or fold.pending:
        return False
    has_text = False
    for part in message.parts:
        if isinstance(part, Text):
            has_text = True
        elif not (isinstance(part, Note) and part.kind == "moment" and message.role == "user"):
            return False
        if not part.text or part.text.isspace() or sanitize_text(part.text) != part.text:
            return False
    if not has_text:
        return False
    if message.role == "user":
        fold.last_assistant = None
        fold.started = True
    elif message.role == "assistant" and fold.started:
        last = fold.last_assistant
        if last is not None and message.id and last.id == message.id:
            return False
        fold.last_assistant = fold.pieces = message
    else:
        return False
    if fold.answered:
        fold.answered = set()
    fold.changes.setdefault(_CLOSED, 0)  # the report has the order in which changes were first counted
    return True


def step(fold: Fold, message: Message, *, plain: bool) -> list[ShownMessage]:
    """Return the messages to show for the next stored message, and update `fold`.

    `plain` omits thinking and memory notes. Raises NotAppend if the message continues the last assistant message.
    """
    stored = message
    message = _clean(fold, message, plain=plain)
    results = tuple(message.results())
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    shown_messages: list[ShownMessage] = []
    if results:
        shown_messages.extend(_answers(fold, message, results))
    if message.role == "assistant":
        shown_messages.extend(_assistant(fold, message, others))
        if shown_messages and shown_messages[-1][0].role == "assistant":
            fold.pieces = stored
    elif others and (message.role != "tool" or _is_visible(others)):
        has_notes = any(map(unsendable_kind, stored.parts))
        is_output = is_program_output(stored)
        shown_messages.extend(_user(fold, message, others, has_notes=has_notes, is_output=is_output))
    elif not results:
        fold.changes[_EMPTY] += 1
    return shown_messages


def join_last(fold: Fold, piece: Message, *, plain: bool) -> list[ShownMessage]:
    """Join a later piece to the last assistant message. Return what replaces it: the message as it is shown now first.

    Call it where `step` raised NotAppend.
    """
    assert fold.pieces is not None
    assert fold.last_assistant is not None
    # The results among them were answers, or are held, since the first step.
    parts = tuple(part for part in piece.parts if not isinstance(part, ToolResult))
    if piece.model != fold.pieces.model:  # thinking returns to the model that wrote it only
        parts = tuple(part for part in parts if not isinstance(part, Thinking))
    for call in fold.last_assistant.calls():
        fold.used_ids.counts.pop(call.id, None)
    fold.last_assistant = None
    fold.waiting.clear()
    pending, fold.pending = fold.pending, []  # they follow the whole group
    pieces = (part for part in fold.pieces.parts if not isinstance(part, ToolResult))
    shown_messages = step(fold, with_parts(fold.pieces, (*pieces, *parts)), plain=plain)
    fold.pending = [*pending, *fold.pending]
    return shown_messages


def counted_parts(message: Message) -> int:
    """Return the number of parts that count in full. A message that shows fewer than were stored is recounted."""
    return sum(1 for part in message.parts if not _is_optional(part))


def closing_messages(fold: Fold) -> list[Message]:
    """Return what the open group still lacks: one message per missing result, then late results; `fold` is unchanged."""
    text, is_error = (NO_RESULT, False) if fold.render >= LATE_RESULTS_RENDER else (INTERRUPTED, True)
    closing = [
        Message("tool", (ToolResult(call.id, (Text(text),), call.name, is_error),)) for call in fold.waiting.values()
    ]
    if fold.pending:
        closing.append(Message("user", tuple(fold.pending), source=LATE_SOURCE))
    return [*closing, *fold.system_queue]


def is_synthetic_result(message: Message) -> bool:
    """Return True if the message only reports missing results, so that no stored message corresponds to it."""
    return all(map(is_missing_result, message.results()))


def is_missing_result(result: ToolResult) -> bool:
    """Return True for a result that replaces a missing one."""
    if result.is_error:
        return result.content == (Text(INTERRUPTED),)
    return result.content == (Text(NO_RESULT),)


def preview(fold: Fold, messages: Iterable[Message]) -> tuple[list[Message], Counter[str]]:
    """Return the messages that a user message or tool results would show next, and the changes of the repair.

    Open calls are answered at the end. `fold` is unchanged. Results that the open group lacks come first when a user
    speaks.
    """
    after = replace_fold(
        fold,
        waiting=dict(fold.waiting),
        answered=set(fold.answered),
        late=dict(fold.late),
        early=dict(fold.early),
        pending=fold.pending[:],
        system_queue=fold.system_queue[:],
        changes=Counter[str](),
    )
    visible = [view for message in messages for view, _, _ in step(after, message, plain=False)]
    after.changes[_CLOSED] += len(after.waiting)
    return [*visible, *closing_messages(after)], after.changes


def with_answers(fold: Fold, messages: Iterable[Message]) -> Iterator[int]:
    """Yield the indexes of messages that answer a waiting call first; second results are not shown."""
    waiting = set(fold.waiting)
    for index, message in enumerate(messages):
        answered = waiting & {result.call_id for result in message.results()}
        if answered:
            yield index
        waiting -= answered


def close(fold: Fold) -> list[Message]:
    """Return the messages that complete the open group, and close it."""
    closing = closing_messages(fold)
    fold.late.update(fold.waiting)
    fold.waiting, fold.answered, fold.pending, fold.system_queue, fold.last_assistant = {}, set(), [], [], None
    return closing


def _close(fold: Fold) -> list[ShownMessage]:
    fold.changes[_CLOSED] += len(fold.waiting)
    return [(message, message.role != "tool", True) for message in close(fold)]


def _continues_reply(fold: Fold, message: Message) -> bool:
    """Return whether an assistant's message belongs to the one before it: same id, or calls of that one still wait."""
    last = fold.last_assistant
    if last is None:
        return False
    if message.id and last.id == message.id:
        return True
    return last.source != UNANSWERED and bool(fold.waiting) and fold.render >= LATE_RESULTS_RENDER


def _assistant(fold: Fold, message: Message, parts: tuple[Part, ...]) -> list[ShownMessage]:
    images = sum(isinstance(part, Image) for part in parts)
    if images and not message.received:
        fold.changes["image in an assistant message left out"] += images
    # No format is sent these from the parts. As received they are sent, with the data of the images.
    left_out = Note if message.received else (Image, Note)
    parts = tuple(part for part in parts if not isinstance(part, left_out))
    if _continues_reply(fold, message) and any(not isinstance(part, Thinking) for part in parts):
        raise NotAppend
    if all(isinstance(part, Thinking) for part in parts):
        fold.changes[_EMPTY] += 1
        return []
    shown_messages = _close(fold)
    if not fold.started:
        fold.started = True
        fold.changes[_SUPPLIED] += 1
        shown_messages.append((Message("user", (Text(STARTS_WITH_ASSISTANT),)), True, True))
    early = tuple(fold.early.pop(part.id) for part in parts if isinstance(part, ToolCall) and part.id in fold.early)
    shown_parts, altered = _calls(fold, parts)
    view = message
    if shown_parts != message.parts:
        view = _with_shown_calls(fold, message, parts, shown_parts)
    fold.last_assistant = view
    shown_messages.append((view, True, altered))
    if early:
        fold.changes[_NO_CALL] -= len(early)
        answers = _answers(fold, Message("tool", early), early)
        shown_messages.extend((answer, starts_group, True) for answer, starts_group, _ in answers)
    return shown_messages


def _with_shown_calls(fold: Fold, message: Message, parts: tuple[Part, ...], shown_parts: tuple[Part, ...]) -> Message:
    """Return a message with its calls as shown. If only ids differ, it is still sent as received."""
    if fold.render >= SYSTEM_RENDER and not custom_calls(message):
        shown_calls = (part for part in shown_parts if isinstance(part, ToolCall))
        ids = {call.id: new.id for call, new in zip(message.calls(), shown_calls, strict=False)}
        renamed = with_call_ids(message, ids)
        if renamed.parts == shown_parts:
            return renamed
    changes = with_parts
    if fold.render >= REASONING_RENDER:
        changes = with_changed_calls
    keeps = changes
    if _same_calls(message, parts, shown_parts):
        keeps = with_neutral_parts
    return keeps(message, shown_parts)


def _user(
    fold: Fold, message: Message, parts: tuple[Part, ...], *, has_notes: bool, is_output: bool = False
) -> list[ShownMessage]:
    dropped = [part for part in parts if isinstance(part, (ToolCall, Thinking))]
    if dropped:
        fold.changes["call or thinking outside an assistant message left out"] += len(dropped)
        parts = tuple(part for part in parts if not isinstance(part, (ToolCall, Thinking)))
    if not _is_visible(parts):
        fold.changes[_EMPTY] += 1
        return []
    if message.role == "system" and message.received and fold.render >= SYSTEM_RENDER:
        return _system(fold, message)
    shown_messages = _close(fold)
    altered = message.role == "system"
    if altered:
        parts = (Text(SYSTEM_NOTE), *parts)
        fold.changes["system message shown as a user's"] += 1
    view = message
    if parts != message.parts or message.role != "user":
        keeps = with_neutral_parts
        if dropped or any(message.results()):
            keeps = with_parts
        view = keeps(message, parts, role="user")
    starts_group = not (fold.started and is_output)
    fold.last_assistant = None
    fold.started = True
    shown_messages.append((view, starts_group, altered or has_notes))
    return shown_messages


def _system(fold: Fold, message: Message) -> list[ShownMessage]:
    """Return a system message of a provider's list, which its writers place, behind the results that calls wait for."""
    if fold.waiting:
        fold.system_queue.append(message)
        return []
    shown_messages = _close(fold)
    fold.last_assistant = None
    return [*shown_messages, (message, True, False)]


def _with_results(fold: Fold, message: Message, results: tuple[ToolResult, ...], shown_ids: dict[str, str]) -> Message:
    """Return a message with other results, as received as they allow."""
    renamed_message = with_call_ids(message, shown_ids)
    is_function = fold.render >= SYSTEM_RENDER and message.role == "tool" and not message.meta
    if is_function and _same_results(renamed_message, results):
        return with_neutral_parts(renamed_message, results)
    keeps = with_neutral_parts if _same_results(message, results) else with_parts
    call_ids = {result.call_id for result in message.results()}
    renamed = any(result.call_id not in call_ids for result in results)
    # A call with another id is a function's again, so its result's own type is void too.
    return keeps(message, results, role="tool", **({"meta": ""} if renamed else {}))


def _answers(fold: Fold, message: Message, results: tuple[ToolResult, ...]) -> list[ShownMessage]:
    accepted: list[ToolResult] = []
    shown_ids: dict[str, str] = {}
    for result in results:
        call = fold.waiting.pop(result.call_id, None)
        if call is not None:
            fold.answered.add(result.call_id)
            shown_ids[result.call_id] = call.id
            same = result.call_id == call.id and result.name == call.name
            accepted.append(result if same else replace(result, call_id=call.id, name=call.name))
        elif result.call_id in fold.answered:
            fold.changes["second result left out"] += 1
        else:
            _add_displaced(fold, result)
    shown_messages: list[ShownMessage] = []
    if accepted:
        fold.last_assistant = None
        parts = tuple(accepted)
        if message.role == "tool" and parts == message.parts:
            shown_messages.append((message, False, False))
        else:
            shown_messages.append((_with_results(fold, message, parts, shown_ids), False, True))
    if (fold.pending or fold.system_queue) and not fold.waiting:
        shown_messages += _close(fold)
    return shown_messages


def _add_displaced(fold: Fold, result: ToolResult) -> None:
    """Hold a result that no open call waits for: a late one until the group is complete, an early one for its call."""
    if fold.render < LATE_RESULTS_RENDER:
        fold.changes[_NO_CALL] += 1
        return
    call_id = result.call_id
    call = fold.late.pop(result.call_id, None)
    if fold.render >= STORED_IDS_RENDER:
        is_shown = call_id in fold.stored_ids
    else:
        is_shown = call_id in fold.used_ids
    if call is None and is_shown:
        fold.changes["second result left out"] += 1
    elif call is None and not fold.hides_start:
        fold.early[call_id] = result
        fold.changes[_NO_CALL] += 1
    else:
        if call is not None:
            name = call.name
        elif result.name:
            name = short_name(result.name)
        else:
            name = "a tool"
        text = "\n".join(item.text for item in result.content if isinstance(item, Text))
        kind = "error" if result.is_error else "result"
        heading = f"[Late {kind} of {name} ({safe_id(call_id)}): it came after the conversation went on]"
        fold.pending.append(Text(fold.late_text(f"{heading}\n{text}")))
        fold.pending += [item for item in result.content if isinstance(item, Image)]
        fold.changes["late result shown as text"] += 1


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
        name = safe_name(part.name)
        arguments = arguments_as_object(part.arguments)
        shown_id = fold.used_ids.add(part.id)
        if (shown_id, name, arguments) != (part.id, part.name, part.arguments):
            fold.changes["call id, name or arguments made valid"] += 1
            altered = True
        fold.stored_ids.add(part.id)
        fold.waiting[part.id] = view = ToolCall(shown_id, name, arguments)
        valid.append(view)
    return tuple(valid), altered


def _with_kind_line(message: Message, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts of a received reply: one that says nothing names the first part that cannot be sent."""
    if any(isinstance(part, (Text, ToolCall)) for part in parts):
        return parts
    unsendable = (part for part in message.parts if isinstance(part, (Image, Unknown)))
    return (*parts, *(Text(kind_line(part)) for part in islice(unsendable, 1)))


def _clean(fold: Fold, message: Message, *, plain: bool) -> Message:
    if message.role != "assistant" and fold.render >= LATE_RESULTS_RENDER:
        noted = with_unsendable_as_notes(message)
        if noted is not message:
            fold.changes["part that cannot be sent shown as a note"] += not noted.received
            message = noted
    unknown = [part for part in message.parts if isinstance(part, Unknown)]
    if unknown and not message.received:
        fold.changes["part of an unknown kind left out"] += len(unknown)
    parts = tuple(part for part in map(_sanitized, message.parts) if not _is_empty(part))
    if message.received and message.role == "assistant":
        parts = _with_kind_line(message, parts)
    if plain:
        parts = tuple(part for part in parts if not _is_optional(part))
    if parts == message.parts:
        return message
    return with_neutral_parts(message, parts)


def _same_calls(message: Message, parts: tuple[Part, ...], shown_parts: tuple[Part, ...]) -> bool:
    """Return True if the calls are sent as received: only custom tools' inputs, which are free text, were wrapped."""
    custom = custom_calls(message)
    changed = [part for part, view in zip(parts, shown_parts, strict=False) if part != view]
    changed_calls = [part for part in changed if isinstance(part, ToolCall)]
    if len(parts) != len(shown_parts) or len(changed_calls) != len(changed) or any(message.results()):
        return False
    views = {view.id: view.name for view in shown_parts if isinstance(view, ToolCall)}
    return all(call.id in custom and views.get(call.id) == call.name for call in changed_calls)


def _same_results(message: Message, parts: tuple[ToolResult, ...]) -> bool:
    """Return True if the results are sent as received: all of them, and at most a missing name was added."""
    results = tuple(message.results())
    return len(results) == len(parts) == len(message.parts) and all(
        result == part or replace(part, name="") == result for result, part in zip(results, parts, strict=True)
    )


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
            if text.isascii() or sanitize_text(text) == text:
                return part
            return replace(part, text=sanitize_text(text))
        case ToolResult(content=content):
            if all(not isinstance(item, Text) or item.text.isascii() for item in content):
                return part
            clean = tuple(replace(i, text=sanitize_text(i.text)) if isinstance(i, Text) else i for i in content)
            if clean == content:
                return part
            return replace(part, content=clean)
        case Thinking(text=text):
            if text.isascii():
                return part
            return replace(part, text=sanitize_text(text))
        case _:
            return part
