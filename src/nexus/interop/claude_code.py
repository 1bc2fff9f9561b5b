"""Reads the session files of Claude Code (JSON Lines, one event a line) into transcripts.

User and assistant lines are messages; a compaction boundary with its summary is a compaction; everything else (hook
progress, file snapshots, queue operations) is counted by kind, but its place in the chain of parents counts. A line
whose parent is not in the file is joined to the message before it, and reported. A second line without a parent is a
cleared conversation. Lines of sub-agents (`isSidechain`) form transcripts of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.claude_code_line import ABOUT, SYNTHETIC, TAKEN, digest, messages_of, usage_of
from nexus.interop.claude_code_tree import START, Chain, Link, paths
from nexus.interop.json_lines import JsonLine, read_json_lines
from nexus.interop.transcript import Piece, Problem, Step, Transcript
from nexus.providers.received import mapping, meta_text, number_of, text_of
from nexus.types.message import Message, Text

_TRIGGERS = {"auto": "context_limit", "manual": "manual"}
_ENDS = {"turn_duration", "stop_hook_summary", "end_turn", "stop_sequence"}
"""What says that an exchange is over: events that follow it, and reasons to stop."""

_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}


@dataclass(slots=True)
class _File:
    """What one pass over the file collects."""

    main: Chain = field(default_factory=Chain)
    sides: dict[str, Chain] = field(default_factory=dict[str, Chain])
    links: dict[str, tuple[Chain, Link]] = field(default_factory=dict[str, tuple[Chain, Link]])
    boundaries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    compacted: dict[str, int] = field(default_factory=dict[str, int])
    contents: dict[str, str] = field(default_factory=dict[str, str])
    summaries: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    titles: dict[str, str] = field(default_factory=dict[str, str])
    counted: Counter[str] = field(default_factory=Counter[str])
    left_out: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    about: dict[str, Any] = field(default_factory=dict[str, Any])
    sessions: dict[str, None] = field(default_factory=dict[str, None])
    side: Chain | None = None
    ended: bool = False
    lines: int = 0

    def link(self, uuid: str, chain: Chain, link: Link) -> None:
        """Notes where a line stands, for its children; the first line of an id counts."""
        if uuid:
            self.links.setdefault(uuid, (chain, link))

    def trouble(self, line: int, kind: str, text: str) -> None:
        """Notes a problem."""
        self.problems.append(Problem(line, kind, text))


def read(path: Path) -> Iterator[Transcript]:
    """The file's conversation. Raises UnreadableFile when it cannot be read or no line is an event of Claude Code."""
    file = _File()
    for row in read_json_lines(path):
        file.lines += 1
        _take(file, row)
    if not file.contents and all(kind.startswith("(") for kind in file.counted):
        raise UnreadableFile(f"{path} holds no event of Claude Code: is it really one of its session files?")
    yield _transcript(file, path.stem)


def _take(file: _File, row: JsonLine) -> None:
    if row.problem:
        file.problems.append(row.problem)
    record = mapping(row.value)
    kind = text_of(record.get("type"))
    if row.kind or not kind:
        file.counted[row.kind or "(no event)"] += 1
        if not row.kind:
            file.trouble(row.line, "no event", "JSON, but no event of Claude Code: passed over")
        return
    if kind in ("user", "assistant"):
        _take_message(file, row.line, record, kind)
        return
    subtype = text_of(record.get("subtype"))
    file.ended = file.ended or subtype in _ENDS
    file.counted[f"{kind}/{subtype}" if subtype else kind] += 1
    if kind == "summary":
        file.summaries.append((text_of(record.get("leafUuid")), text_of(record.get("summary"))))
    elif kind in _TITLES:
        file.titles[kind] = text_of(record.get(_TITLES[kind]))
    if uuid := text_of(record.get("uuid")):
        chain, link = _place(file, row.line, record)
        if (kind, subtype) == ("system", "compact_boundary"):
            file.boundaries.setdefault(uuid, record)
            file.contents.setdefault(uuid, "")
            link = Link(link.node, boundary=uuid)
        file.link(uuid, chain, link)


def _place(file: _File, line: int, record: dict[str, Any]) -> tuple[Chain, Link]:
    """The chain that a line belongs to, and where in it the line hangs."""
    logical = text_of(record.get("logicalParentUuid"))
    parent = text_of(record.get("parentUuid")) or logical
    known = file.links.get(parent)
    chain = _chain(file, record, known[0] if known else None, rootless=not parent)
    if known and known[0] is chain:
        return chain, known[1]
    if not parent:
        return chain, Link(chain.last, cleared="parentUuid" in record and chain.last != START)
    if known and chain is not file.main and chain.last == START:
        return chain, Link(START)
    where = "in another chain" if known else "not in the file before it"
    joined = "joined to the message before it" if chain.last != START else "it begins the conversation here"
    file.trouble(line, "broken link", f"its parent {parent} is {where}: {joined}")
    return chain, Link(chain.last)


def _chain(file: _File, record: dict[str, Any], of_parent: Chain | None, *, rootless: bool) -> Chain:
    """The main chain, or a side chain: by its agent's id, else by the line's parent, else a new one for a new root."""
    if record.get("isSidechain") is not True:
        return file.main
    name = text_of(record.get("agentId"))
    if not name and of_parent is not None and of_parent is not file.main:
        file.side = of_parent
    elif not name and not rootless and of_parent is None and file.side is not None:
        pass
    else:
        name = name or text_of(record.get("uuid")) or f"side-{len(file.sides) + 1}"
        file.side = file.sides.setdefault(name, Chain(name))
    return file.side


def _take_message(file: _File, line: int, record: dict[str, Any], kind: str) -> None:
    uuid = text_of(record.get("uuid"))
    chain, link = _place(file, line, record)
    try:
        key = _key(file, uuid, record)
        messages = messages_of(record, kind, key, chain.calls) if key else ()
    except (BadReply, RecursionError) as error:
        file.trouble(line, "damaged message", str(error) if isinstance(error, BadReply) else "nested too deeply")
        file.counted["(damaged message)"] += 1
        file.link(uuid, chain, link)
        return
    if not messages:
        file.trouble(line, "duplicate", f"the line {uuid} stands in the file twice, with the same content")
        file.counted["(duplicate)"] += 1
        return
    if uuid not in ("", key):
        file.trouble(line, "duplicate", f"two different lines have the id {uuid}: both were kept")
    _note(file, record)
    file.ended = text_of(mapping(record["message"]).get("stop_reason")) in _ENDS
    summary = record.get("isCompactSummary") is True
    link = _after_boundary(file, line, link, summary=summary)
    if summary:
        place = _add_compaction(file, chain, link, key, messages)
        if any(not isinstance(part, Text) for message in messages for part in message.parts):
            file.trouble(line, "summary", "a compaction's summary holds more than text: only its text was read")
    elif kind == "assistant":
        stop = text_of(mapping(record["message"]).get("stop_reason"))
        place = chain.add_assistant(link, messages[0], key, usage_of(record), stop)
    else:
        step = Step(pieces=(Piece(key, messages),), at_ms=messages[0].at_ms)
        place = chain.add_results(step)
        if place is None:
            place = chain.add(link, step, inserted=record.get("isMeta") is True)
    file.link(uuid, chain, Link(place))


def _key(file: _File, uuid: str, record: dict[str, Any]) -> str:
    """The line's id; where it has none or shares it, made from its content. Empty for a line that was read already."""
    content = digest(record.get("message"))
    key = uuid or f"line-{digest(record)}"
    if key in file.contents and not uuid:
        key = next(name for number in range(2, file.lines + 2) if (name := f"{key}#{number}") not in file.contents)
    elif key in file.contents:
        if file.contents[key] == content or f"{key}#{content}" in file.contents:
            return ""
        key = f"{key}#{content}"
    file.contents[key] = content
    return key


def _after_boundary(file: _File, line: int, link: Link, *, summary: bool) -> Link:
    """The link, when it hangs under a compaction boundary: after the compaction, if its summary was read already."""
    if not link.boundary or (summary and link.boundary not in file.compacted):
        return link
    if link.boundary in file.compacted:
        return Link(file.compacted[link.boundary])
    file.trouble(line, "compaction without summary", "what follows it begins anew, as the tool itself did")
    return Link(link.node, cleared=link.node != START)


def _add_compaction(file: _File, chain: Chain, link: Link, key: str, messages: tuple[Message, ...]) -> int:
    boundary = file.boundaries.get(link.boundary, {})
    about = mapping(boundary.get("compactMetadata"))
    pieces = (Piece(key),)
    if boundary:
        pieces = (Piece(link.boundary), *pieces)
        file.counted["system/compact_boundary"] -= 1
    step = Step(
        "compaction",
        pieces,
        at_ms=messages[0].at_ms,
        summary=messages[0].text(),
        trigger=_TRIGGERS.get(text_of(about.get("trigger")), ""),
        tokens_before=number_of(about.get("preTokens")),
        kept_from=text_of(mapping(about.get("preservedSegment")).get("headUuid")),
    )
    place = chain.add(link, step)
    if boundary:
        file.compacted[link.boundary] = place
    return place


def _note(file: _File, record: dict[str, Any]) -> None:
    for name in ABOUT:
        if text := text_of(record.get(name)):
            file.about[name] = text
    if session := text_of(record.get("sessionId")):
        file.sessions.pop(session, None)
        file.sessions[session] = None
    file.left_out.update(name for name in record if name not in TAKEN)


def _transcript(file: _File, stem: str) -> Transcript:
    session = next(reversed(file.sessions), stem)
    main = _conversation(file, file.main, session)
    sides = tuple(_conversation(file, chain, chain.name) for chain in file.sides.values() if chain.nodes)
    if len(sides) == 1 and not file.main.nodes:
        main, sides = replace(sides[0], source_id=f"{session}+{sides[0].source_id}"), ()
    title = next((text for leaf, text in reversed(file.summaries) if leaf in file.links and text), "")
    about = {name: value for name, value in file.about.items() if name != "cwd"}
    if len(file.sessions) > 1:
        about["sessions"] = [*file.sessions]
    return replace(
        main,
        title=file.titles.get("custom-title") or file.titles.get("ai-title") or title,
        sidechains=sides,
        counted=dict(+file.counted),
        omitted=dict(file.left_out),
        problems=tuple(file.problems),
        lines=file.lines,
        message_lines=main.message_lines + sum(side.message_lines for side in sides),
        meta=meta_text(about),
    )


def _conversation(file: _File, chain: Chain, source_id: str) -> Transcript:
    steps, forks = paths(chain, ended=file.ended)
    lines = chain.lines()
    return Transcript(
        format="claude_code",
        unique_keys=True,
        source_id=source_id,
        steps=steps,
        forks=forks,
        lines=lines,
        message_lines=lines,
        model=_model(steps),
        cwd=text_of(file.about.get("cwd")),
    )


def _model(steps: Sequence[Step]) -> str:
    """The model that answered last."""
    answered = (message.model for step in reversed(steps) for message in step.messages)
    return next((model for model in answered if model and model != SYNTHETIC), "")
