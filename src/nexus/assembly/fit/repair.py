"""The one repair: whatever the ledger holds, what comes out is a sequence that every provider accepts.

It is a fold over messages with a small state, so that the repair of a longer history is the repair of the shorter one
plus a step: a later call extends an earlier one byte for byte. It works on view values; stored history is never touched.

Rules: a group is an assistant message with all its results, or any other message. Results without a call, and second
results, are left out; calls without a result get `[result unavailable: interrupted]` when the conversation goes on;
ids are made unique and safe; names and arguments take a form that providers accept (arguments that are not a JSON
object are kept as text in `_unparsed`); messages with nothing to show are left out; the first message is a user's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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
_MADE_ONCE = (_CLOSED, _SUPPLIED)
"""Changes beside a message, which are not made again when a later piece joins it."""

Shown = tuple[Message, bool, bool]
"""A message to show, whether it starts a group, and whether it differs from the stored one (so its count does too)."""


@dataclass(slots=True)
class Fold:
    """The state of the repair: the open group's unanswered calls (stored id → shown id and name), and the ids in use."""

    waiting: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    answered: set[str] = field(default_factory=set[str])
    used: dict[str, int] = field(default_factory=dict[str, int])
    tail: Message | None = None
    started: bool = False
    done: Counter[str] = field(default_factory=Counter[str])


class NotAppend(Exception):
    """The message belongs into the last one shown, not after it: the window must be made anew."""


def repaired(messages: Iterable[Message]) -> tuple[list[Message], RepairReport]:
    """The messages in a form that every provider accepts when they are shown, and what had to be changed for it.

    The full pass: what `step` shows for each, pieces of one message joined, and at the end the results that open calls
    lack. A system message becomes a user's, so keep the one that opens a conversation apart. Repairing what was
    repaired changes nothing.
    """
    fold, shown = Fold(), list[Message]()
    pieces: Message | None = None
    counted: Counter[str] = Counter()
    for message in messages:
        before = fold.done.copy()
        try:
            new = [view for view, _, _ in step(fold, message, plain=False)]
        except NotAppend:
            assert pieces is not None
            pieces = join_pieces(pieces, message)
            fold.done = before - counted
            before = fold.done.copy()
            new = [_rejoined(fold, shown.pop(), pieces)]
        else:
            if new and new[-1].role == "assistant":
                pieces = message
        if new and new[-1].role == "assistant":
            counted = Counter({what: n for what, n in (fold.done - before).items() if what not in _MADE_ONCE})
        shown.extend(new)
    lacking = [view for view, _, _ in _close(fold)]
    return [*shown, *lacking], RepairReport(dict(+fold.done))


def _rejoined(fold: Fold, seen: Message, pieces: Message) -> Message:
    """The assistant message that was shown last, shown again with all its pieces."""
    fold.tail = None
    for call in seen.calls():
        fold.used.pop(call.id, None)
    fold.waiting.clear()
    return step(fold, pieces, plain=False)[-1][0]


def step(fold: Fold, message: Message, *, plain: bool) -> list[Shown]:
    """What to show for the next stored message; changes `fold`. `plain` leaves thinking and memory notes out.

    Raises NotAppend when the message continues the assistant message that was shown last.
    """
    message = _clean(fold, message, plain=plain)
    results = tuple(part for part in message.parts if isinstance(part, ToolResult))
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    shown: list[Shown] = []
    if results:
        shown.extend(_answers(fold, message, results))
    if message.role == "assistant":
        shown.extend(_assistant(fold, message, others))
    elif others and (message.role != "tool" or _visible(others)):
        shown.extend(_user(fold, message, others))
    elif not results:
        fold.done["empty message left out"] += 1
    return shown


def without_thinking_loss(message: Message) -> int:
    """How many parts of a message count in full: one that shows fewer than were stored must be counted anew."""
    return sum(
        1
        for part in message.parts
        if not isinstance(part, Thinking) and not (isinstance(part, Note) and part.kind == "memory")
    )


def missing_results(fold: Fold) -> list[Message]:
    """The results that the open group still lacks, as one message for each call; leaves `fold` as it is."""
    return [
        Message("tool", (ToolResult(call.id, (Text(INTERRUPTED),), call.name, is_error=True),))
        for call in fold.waiting.values()
    ]


def is_synthetic_result(message: Message) -> bool:
    """Whether a message only says that a result is missing, and so belongs to no stored one."""
    return all(map(is_interruption, message.results()))


def is_interruption(result: ToolResult) -> bool:
    """Whether a result is the one that stands for a missing one."""
    return result.is_error and result.content == (Text(INTERRUPTED),)


def preview(fold: Fold, messages: Iterable[Message]) -> list[Message]:
    """What a step for each of these user messages or tool results would show, calls left open answered at the end.

    `fold` stays as it is. Results that the open group lacks come first when a user speaks.
    """
    ahead = Fold(dict(fold.waiting), set(fold.answered), fold.used, fold.tail, fold.started)
    shown = [view for message in messages for view, _, _ in step(ahead, message, plain=False)]
    return [*shown, *missing_results(ahead)]


def with_answers(fold: Fold, messages: Iterable[Message]) -> Iterator[int]:
    """The messages, by number, with a first result of a call that waits; a second one of a call is not shown."""
    waiting = set(fold.waiting)
    for at, message in enumerate(messages):
        answered = waiting & {result.call_id for result in message.results()}
        if answered:
            yield at
        waiting -= answered


def join_pieces(earlier: Message, later: Message) -> Message:
    """Two pieces of one assistant message as one."""
    return replace(earlier, parts=(*earlier.parts, *later.parts))


def _close(fold: Fold) -> list[Shown]:
    lacking = missing_results(fold)
    if lacking:
        fold.done[_CLOSED] += len(lacking)
    fold.waiting, fold.answered = {}, set()
    return [(message, False, True) for message in lacking]


def _assistant(fold: Fold, message: Message, parts: tuple[Part, ...]) -> list[Shown]:
    pictures = sum(isinstance(part, Image) for part in parts)
    if pictures:
        fold.done["image in an assistant message left out"] += pictures
    parts = tuple(part for part in parts if not isinstance(part, (Image, Note)))
    continues = fold.tail is not None and bool(message.id) and fold.tail.id == message.id
    if continues and any(not isinstance(part, Thinking) for part in parts):
        raise NotAppend
    if all(isinstance(part, Thinking) for part in parts):
        fold.done["empty message left out"] += 1
        return []
    shown = _close(fold)
    if not fold.started:
        shown.extend(_opened(fold))
    parts, altered = _calls(fold, parts)
    view = replace(message, parts=parts) if parts != message.parts else message
    fold.tail = view
    shown.append((view, True, altered))
    return shown


def _opened(fold: Fold) -> list[Shown]:
    fold.started = True
    fold.done[_SUPPLIED] += 1
    return [(Message("user", (Text(STARTS_WITH_ASSISTANT),)), True, True)]


def _user(fold: Fold, message: Message, parts: tuple[Part, ...]) -> list[Shown]:
    dropped = [part for part in parts if isinstance(part, (ToolCall, Thinking))]
    if dropped:
        fold.done["call or thinking outside an assistant message left out"] += len(dropped)
        parts = tuple(part for part in parts if not isinstance(part, (ToolCall, Thinking)))
    if not _visible(parts):
        fold.done["empty message left out"] += 1
        return []
    shown = _close(fold)
    altered = message.role == "system"
    if altered:
        parts = (Text(SYSTEM_NOTE), *parts)
        fold.done["system message shown as a user's"] += 1
    view = message if parts == message.parts and message.role == "user" else replace(message, role="user", parts=parts)
    fold.tail, fold.started = None, True
    shown.append((view, True, altered))
    return shown


def _answers(fold: Fold, message: Message, results: tuple[ToolResult, ...]) -> Iterable[Shown]:
    kept: list[ToolResult] = []
    for result in results:
        call = fold.waiting.pop(result.call_id, None)
        if call is None:
            again = result.call_id in fold.answered
            fold.done["second result left out" if again else "result without a call left out"] += 1
            continue
        fold.answered.add(result.call_id)
        same = result.call_id == call.id and result.name == call.name
        kept.append(result if same else replace(result, call_id=call.id, name=call.name))
    if not kept:
        return []
    fold.tail = None
    parts = tuple(kept)
    same = message.role == "tool" and parts == message.parts
    return [(message if same else replace(message, role="tool", parts=parts), False, not same)]


def _calls(fold: Fold, parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], bool]:
    """The parts with ids, names and arguments that providers accept, and whether arguments or names had to change."""
    out: list[Part] = []
    altered = False
    for part in parts:
        if not isinstance(part, ToolCall):
            out.append(part)
            continue
        if part.id in fold.waiting:
            fold.done["call with the id of another one in its message left out"] += 1
            altered = True
            continue
        name = part.name if _SAFE_NAME.match(part.name) else _safe_name(part.name)
        arguments = arguments_as_object(part.arguments)
        shown_id = _unique(part.id, fold.used)
        if (shown_id, name, arguments) != (part.id, part.name, part.arguments):
            fold.done["call id, name or arguments made valid"] += 1
            altered = True
        view = ToolCall(shown_id, name, arguments)
        fold.waiting[part.id] = view
        out.append(view)
    return tuple(out), altered


def _clean(fold: Fold, message: Message, *, plain: bool) -> Message:
    parts = tuple(part for part in (_legible(part) for part in message.parts) if not _empty(part))
    unknown = sum(isinstance(part, Unknown) for part in message.parts)
    if unknown:
        fold.done["part of an unknown kind left out"] += unknown
    if plain:
        parts = tuple(
            part
            for part in parts
            if not isinstance(part, Thinking) and not (isinstance(part, Note) and part.kind == "memory")
        )
    return message if parts == message.parts else replace(message, parts=parts)


def _empty(part: Part) -> bool:
    if isinstance(part, (Text, Note)):
        return not part.text.strip()
    if isinstance(part, Image):
        return not (part.data or part.url)
    return isinstance(part, Unknown)


def _visible(parts: Iterable[Part]) -> bool:
    return any(isinstance(part, (Text, Image, Note)) for part in parts)


def _legible(part: Part) -> Part:
    """Lone surrogates, which no request body can carry, as U+FFFD."""
    match part:
        case Text(text) | Note(text=text):
            return part if text.isascii() or sanitize_text(text) == text else replace(part, text=sanitize_text(text))
        case ToolResult(content=content):
            if all(not isinstance(item, Text) or item.text.isascii() for item in content):
                return part
            seen = tuple(replace(i, text=sanitize_text(i.text)) if isinstance(i, Text) else i for i in content)
            return part if seen == content else replace(part, content=seen)
        case Thinking(text=text):
            return part if text.isascii() else replace(part, text=sanitize_text(text))
        case _:
            return part


def _safe_name(name: str) -> str:
    safe = _UNSAFE.sub("_", name)[:63]
    return safe if _SAFE_NAME.match(safe) else f"_{safe}"[:64]


def _unique(wanted: str, used: dict[str, int]) -> str:
    """A safe id that the conversation does not have yet; the second `x` becomes `x_2`. Takes it into use."""
    safe = wanted if _SAFE_ID.match(wanted) else (_UNSAFE.sub("_", wanted)[:32] or "call")
    candidate = safe
    while candidate in used:
        used[safe] += 1
        candidate = f"{safe[:32]}_{used[safe]}"
    used[candidate] = 1
    return candidate
