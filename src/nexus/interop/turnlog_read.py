"""Reads turn logs (document 001) into transcripts.

An entry is one message, a compaction or a clear; entries whose extra key says so are one message together. What the key
says is believed only where it gives the same entry again: an entry that was edited is read as what it shows. What a
message has no place for (the user's id, times and indexes of the writer's own kind) is kept in the entry's body, so that
the log can be written as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadTurnLog, UnreadableFile
from nexus.interop.transcript import Piece, Problem, Step, Transcript, group_into_turns
from nexus.interop.turnlog_check import ReadEntry, object_of, read_entries, read_text
from nexus.render.turnlog import times
from nexus.render.turnlog.bare import message_of, parse_bare
from nexus.render.turnlog.entry import (
    EXTRA,
    LOG_ROLES,
    NO_SYSTEM,
    NO_USER,
    SUMMARY,
    Position,
    Unit,
    entry_text,
)
from nexus.render.turnlog.extra import message_with, parts_with, results_extra, results_with
from nexus.render.turnlog.texts import members, minified, object_text, same, string_of, value_text
from nexus.render.turnlog.units import FACTS
from nexus.render.turnlog.write import entries_for
from nexus.types.message import Message, Part

FORMAT = "turnlog"


@dataclass(slots=True)
class _Log:
    """What one pass over a log collects."""

    name: str
    at: Position = field(default_factory=Position)
    steps: list[Step] = field(default_factory=list[Step])
    problems: list[Problem] = field(default_factory=list[Problem])
    keys: dict[int, str] = field(default_factory=dict[int, str])


def read(path: Path) -> Iterator[Transcript]:
    """The file's conversation. What is wrong with an entry is a problem, and the entry is read as far as it goes.

    Raises UnreadableFile when the file cannot be read, and BadTurnLog when it is no JSON array of entries.
    """
    text, damaged = read_text(path)
    log = _Log(path.stem)
    if damaged:
        log.problems.append(Problem(1, "not UTF-8", "bytes that are not UTF-8 were kept as lone surrogates"))
    try:
        for group in _groups(read_entries(text)):
            _take(log, group)
    except BadTurnLog as error:
        raise BadTurnLog(f"{path} is no turn log: {error}") from None
    if not log.steps:
        raise UnreadableFile(f"{path} holds no entry that can be read: `nexus validate` says what is wrong with it")
    steps = group_into_turns(log.steps, ended=True)
    counted = {"turn log": 1}
    yield Transcript(FORMAT, log.name, steps=steps, counted=counted, problems=tuple(log.problems), lines=1)


def _groups(entries: Iterable[ReadEntry]) -> Iterator[list[ReadEntry]]:
    """The entries that may be one unit: a made system entry with what follows it, calls that were made together."""
    group: list[ReadEntry] = []
    for entry in entries:
        extra = object_of(entry.extra)
        joins = extra.get("more") is True or (len(group) == 1 and _is_made(group[0]))
        if group and not joins:
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _is_made(entry: ReadEntry) -> bool:
    """Whether a system entry was made for the entry after it. One with results stands for itself."""
    extra = object_of(entry.extra)
    return entry.position == 0 and extra.get("made") is True and "results" not in extra


def _take(log: _Log, group: list[ReadEntry]) -> None:
    """Adds the steps of a group: as its extra keys say, as far as they agree with what is shown, else entry by entry."""
    first, *more = group
    if _take_told(log, group):
        return
    if not more or not _take_told(log, group[:1]):
        _take_bare(log, first)
    if _is_made(first) and more:
        _take(log, more)
        return
    for entry in more:
        _take_bare(log, entry)


def _take_told(log: _Log, group: list[ReadEntry]) -> bool:
    """Adds a group as its extra keys say; false where they say nothing, or something else than is shown."""
    unit = _told(group, log)
    if unit is None or not _agrees(unit, group, log.at):
        return False
    _add(log, unit, group)
    return True


def _agrees(unit: Unit, group: list[ReadEntry], at: Position) -> bool:
    """Whether a unit is written as the entries that were read; turns are checked elsewhere."""
    written = entries_for(unit, at)[0]
    if len(written) != len(group):
        return False
    turned = [replace(one, turn=read.turn or 0) for one, read in zip(written, group, strict=True)]
    return [same(entry_text(one)) for one in turned] == [same(read.text) for read in group]


def _add(log: _Log, unit: Unit, group: list[ReadEntry]) -> None:
    """Adds a unit's steps. Keys depend on what the entries show and on each result, so a log that grew adds the rest."""
    new, log.at = entries_for(unit, log.at)
    key = f"{log.name}/{group[0].position}/{_hash(*(_without_results(entry) for entry in group))}"
    at_ms = _at_ms(group[-1])
    facts = {FACTS: unit.facts} if unit.facts else {}
    if unit.kind == "compaction":
        trigger, tokens = unit.about["trigger"], unit.about.get("tokens_before", 0)
        kept = "" if unit.kept_from is None else log.keys[unit.kept_from]
        log.steps.append(
            Step(
                "compaction",
                (Piece(key),),
                at_ms,
                summary=unit.summary,
                trigger=trigger,
                tokens_before=tokens,
                kept_from=kept,
                facts=facts,
            )
        )
    elif unit.kind == "clear":
        log.steps.append(Step("clear", (Piece(key),), at_ms, facts=facts))
    elif unit.message is not None:
        log.steps.append(Step(pieces=(Piece(key, (unit.message,)),), at_ms=at_ms, facts=facts))
    if unit.kind != "results":
        log.keys[next(entry.index for entry in new if "made" not in entry.extra)] = key
    for number, (result, value) in enumerate(zip(unit.results, results_extra(unit.results), strict=True)):
        piece = Piece(f"{key}/{number}/{_hash(value_text(value))}", (result,))
        log.steps.append(Step(pieces=(piece,), at_ms=result.at_ms or at_ms))


def _without_results(entry: ReadEntry) -> str:
    """The entry's text without the results that may have come later."""
    extra = {name: value for name, value in object_of(entry.extra).items() if name != "results"}
    shown = tuple(one for one in members(entry.text) or () if one[0] != EXTRA)
    return same(object_text(shown)) + (value_text(extra) if extra else "")


def _hash(*texts: str) -> str:
    """Sixteen hexadecimal digits of the texts."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _told(group: list[ReadEntry], log: _Log) -> Unit | None:
    """The unit that the extra keys of a group tell of; None where there is no key, or none that can be understood."""
    first, *more = group
    extra = object_of(first.extra)
    results: tuple[Message, ...] | None = ()
    for entry in group:
        found = results_with(object_of(entry.extra))
        results = None if found is None or results is None else (*results, *found)
    if not extra or results is None or any(entry.wrong_badly for entry in group):
        return None
    if extra.get("made") is True:
        if more:
            return _said(more, results, replace(log.at, index=log.at.index + 1, instructions=NO_SYSTEM))
        at_ms = (results[0].at_ms if results else 0) or _at_ms(first)
        return Unit("results", results=results, at_ms=at_ms, facts=_facts(first, log.at)) if results else None
    if "mark" in extra:
        return None if more else _mark(first, extra, results, log)
    return _said(group, results, log.at)


def _mark(entry: ReadEntry, extra: dict[str, Any], results: tuple[Message, ...], log: _Log) -> Unit | None:
    facts, at_ms = _facts(entry, log.at), _at_ms(entry)
    if extra.get("mark") == "clear":
        return Unit("clear", results=results, at_ms=at_ms, facts=facts)
    if extra.get("mark") != "compaction" or not isinstance(entry.content, str):
        return None
    trigger, tokens, kept = extra.get("trigger"), extra.get("tokens_before", 1), extra.get("kept_from")
    if not isinstance(trigger, str) or type(tokens) is not int or (kept is not None and kept not in log.keys):
        return None
    about = {name: extra[name] for name in ("trigger", "tokens_before") if name in extra}
    summary = entry.content.removeprefix(f"{SUMMARY}\n")
    return Unit("compaction", None, results, at_ms, facts, summary=summary, about=about, kept_from=kept)


def _said(group: list[ReadEntry], results: tuple[Message, ...], at: Position) -> Unit | None:
    """The message of a group, with the parts of all its entries."""
    first, index = group[0], at.index
    if first.role not in LOG_ROLES or first.content is None:
        return None
    role = first.role
    plain = message_of(role, parse_bare(role, first.content), _index(first, index), _at_ms(first))
    parts: list[Part] = []
    for number, entry in enumerate(group):
        if entry.content is None or entry.role != role:
            return None
        shown = parse_bare(role, entry.content)
        alone = message_of(role, shown, _index(first, index) + number, plain.at_ms)
        found = parts_with(object_of(entry.extra), alone, shown)
        if found is None:
            return None
        parts.extend(found)
    message = message_with(object_of(first.extra), plain, tuple(parts))
    if message is None:
        return None
    return Unit(message=message, results=results, at_ms=plain.at_ms, facts=_facts(first, at))


def _take_bare(log: _Log, entry: ReadEntry) -> None:
    """Adds an entry as what it shows, or says why it cannot be taken."""
    for one in entry.wrong:
        if one.level == "error":
            log.problems.append(
                Problem(entry.line, f"requirement {one.requirement}", f"entry {entry.position}: {one.reason}")
            )
    role, content = entry.role, entry.content
    fits = isinstance(content, str) == (role == "system")
    if role not in LOG_ROLES or content is None or not fits:
        return
    index = log.at.index
    message = message_of(role, parse_bare(role, content), _index(entry, index), _at_ms(entry))
    facts = _facts(entry, log.at)
    unit = Unit(message=message, at_ms=message.at_ms, facts=facts)
    if not entry.wrong_badly and not _agrees(unit, [entry], log.at):
        unit = Unit(message=message, at_ms=message.at_ms, facts={**facts, "entry": minified(entry.text)})
    _add(log, unit, [entry])


def _facts(entry: ReadEntry, at: Position) -> dict[str, Any]:
    """What the entry says beyond a message: the user's id, an index or a time of the writer's own kind.

    `made` is false where a log begins without a system entry.
    """
    facts: dict[str, Any] = {}
    content = entry.content
    if entry.role == "user" and content is not None and not isinstance(content, str):
        userid = string_of(dict(content).get("userid", ""))
        if userid is not None and userid != NO_USER:
            facts["userid"] = userid
    if entry.at_us is not None and times.format_time(_at_ms(entry) * 1_000) != entry.timestamp:
        facts["timestamp"] = entry.timestamp
    if _index(entry, at.index) != at.index:
        facts["index"] = entry.index
    if at.instructions is None and entry.role != "system":
        facts["made"] = False
    return facts


def _index(entry: ReadEntry, expected: int) -> int:
    return entry.index if entry.index is not None and entry.index >= expected else expected


def _at_ms(entry: ReadEntry) -> int:
    return entry.at_us // 1_000 if entry.at_us is not None else 0
