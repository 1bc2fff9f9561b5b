"""Differences between a path of a file and the session that it was imported into.

Files grow, but they also change in other ways: the user goes back, a line gets new content under its id, messages appear
between others (a newer reader may find more of them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import starmap

from msgspec.structs import replace

from nexus.interop.transcript import Step
from nexus.ledger.store import LedgerStore
from nexus.types.message import Image, Message, Part, Text, Thinking, ToolCall, ToolResult


def changed_keys(store: LedgerStore, label: str, steps: tuple[Step, ...], stored: Mapping[str, int]) -> set[str]:
    """Return the keys of the pieces whose content in the ledger is another one."""
    pieces = [(step, piece) for step in steps for piece in step.pieces if piece.key in stored]
    if not pieces:
        return set()
    thread = store.thread_of(label)
    if thread is None:
        return set()
    entries = {entry.seq: entry for entry in store.entries(thread)}
    changed: set[str] = set()
    for step, piece in pieces:
        entry = entries[stored[piece.key]]
        stored_content = _content(row.message for row in entry.rows)
        if step.kind == "compaction":
            is_same = entry.body.get("summary") == step.summary
        elif piece.messages:
            is_same = _content(piece.messages) <= stored_content
        else:  # another piece of the step has its content
            is_same = stored_content <= _content(step.messages)
        if not is_same:
            changed.add(piece.key)
    return changed


def _content(messages: Iterable[Message]) -> Counter[object]:
    """Return what messages contain, with counts. Images are stored in another form and do not count."""
    parts = Counter[object]()
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                texts = tuple(item for item in part.content if isinstance(item, Text))
                parts[message.role, replace(part, name="", content=texts)] += 1
            elif not isinstance(part, Image):
                parts[message.role, part] += 1
    return parts


def is_beginning(old: Iterable[Message], new: Iterable[Message]) -> bool:
    """Return True if messages are others that were still being written: the last part of each may be incomplete."""
    rest = iter(new)
    has_more = False
    for message in old:
        complete = next(rest, None)
        if complete is None or complete.role != message.role or len(message.parts) > len(complete.parts):
            return False
        pairs = [*zip(message.parts, complete.parts, strict=False)]
        if not all(starmap(_is_same, pairs[:-1])):
            return False
        if pairs and not _begins(*pairs[-1]):
            return False
        has_more = has_more or len(pairs) < len(complete.parts) or not all(starmap(_is_same, pairs))
    return has_more


def _is_same(part: Part, other: Part) -> bool:
    """Return True for equal parts; images are stored in another form and not compared."""
    return part == other or (isinstance(part, Image) and isinstance(other, Image))


def _begins(part: Part, complete_part: Part) -> bool:
    match part, complete_part:
        case Text(text), Text(complete):
            return complete.startswith(text)
        case Thinking(text, signature), Thinking(complete, final):
            return complete.startswith(text) and signature in ("", final)
        case ToolCall(call_id, name, arguments), ToolCall(other_id, other_name, complete):
            is_same = (call_id, name) == (other_id, other_name)
            return is_same and (complete.startswith(arguments) or arguments in ("", "{}"))
        case ToolResult(), ToolResult():
            is_same = part.call_id == complete_part.call_id
            return is_same and _result_text(complete_part).startswith(_result_text(part))
        case _:
            return _is_same(part, complete_part)


def _result_text(result: ToolResult) -> str:
    return "\n".join(item.text for item in result.content if isinstance(item, Text))


def first_difference(steps: tuple[Step, ...], stored: Mapping[str, int], head: int, changed: set[str]) -> int:
    """Return the first entry that is not on the path of `steps`, or that follows a missing one; 0 for none."""
    newest = 0
    is_incomplete = False
    for step in steps:
        if different := [stored[key] for key in step.keys if key in changed]:
            return min(different)
        seqs = [stored[key] for key in step.keys if key in stored]
        if seqs and is_incomplete:
            return newest + 1
        is_incomplete = is_incomplete or not seqs
        seqs += (stored.get(f"{key}:end", 0) for key in step.keys[-1:])
        newest = max(newest, 0, *seqs)
    if is_incomplete and 0 < newest < head:
        return newest + 1
    return 0
