"""Reader of Claude Code session files (JSON Lines, one event a line).

User and assistant lines are messages, and so are messages that were typed while the agent was working and have no such
line; a compaction boundary with its summary is a compaction. Everything else (hook progress, file snapshots) is counted
by kind, but remains a link in the chain of parents. A line whose parent is not in the file is joined to the message
before it and reported. A second line without a parent is a cleared conversation. Lines of sub-agents (`isSidechain`, and
`progress` lines with their messages) form separate transcripts. What the tool wrote in the model's place is no message:
an error of the API is the failure of its turn, other notices are counted only.

Newer files record the requests: the first message of a request with another system prompt or other tools has them in the
facts of its step (`IMPORTED_REQUEST`), and the transcript has the cost of all calls.

`message` and the time of a line are imported, and fields that describe the message go into `meta`. All fields outside
`IMPORTED` (above all the tool's own record of its result) are counted only.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.claude_code_queue import MessageQueue, content_text, user_event
from nexus.interop.claude_code_tree import START, Chain, Link, paths
from nexus.interop.json_lines import JsonLine, OnRead, read_json_lines
from nexus.interop.readers import FileReader
from nexus.interop.transcript import FileReport, FileTimes, Problem, Step, Transcript, TranscriptPiece
from nexus.providers import anthropic
from nexus.providers.errors.failures import failure_of
from nexus.providers.received import (
    CallIndex,
    compact_json,
    items_of,
    mapping,
    meta_text,
    number_of,
    text_of,
    with_meta,
)
from nexus.types.ledger_entries import IMPORTED_REQUEST
from nexus.types.message import Message, Text

SYNTHETIC = "<synthetic>"
"""Model of messages that the tool wrote itself, such as notices of API errors."""

ABOUT = ("cwd", "version", "gitBranch", "slug")
"""Fields of every line that describe the session; the last value counts."""

_INTERRUPTED = "[Request interrupted by user"
_IN_META = ("isMeta", "apiError", "error", "requestId", "agentId", "forkedFrom", "permissionMode")

IMPORTED = frozenset(
    {"type", "uuid", "parentUuid", "logicalParentUuid", "message", "timestamp", "isSidechain", "isCompactSummary"}
    | {"sessionId", "userType", "isApiErrorMessage", "requestRef", *ABOUT, *_IN_META}
)
"""Fields of a message line that are imported or redundant."""

_TRIGGERS = {"auto": "context_limit", "manual": "manual"}
_ENDS = {"turn_duration", "stop_hook_summary", "end_turn", "stop_sequence"}
"""Events after a finished turn, and stop reasons that finish one."""

_REQUEST_RECORDS = ("api-request-shape", "api-request", "cost-state")
_encode = msgspec.json.Encoder().encode

_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}


@dataclass(slots=True)
class _Tally:
    """Counts of lines and omitted fields, and the problems."""

    lines: int = 0
    unlined: int = 0
    """Messages that share the line of another one."""
    counted: Counter[str] = field(default_factory=Counter[str])
    omitted: Counter[str] = field(default_factory=Counter[str])
    problems: list[Problem] = field(default_factory=list[Problem])

    def trouble(self, line: int, kind: str, text: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(line, kind, text))


@dataclass(slots=True)
class _Description:
    """Ids, titles and other fields of the session, from its lines."""

    ids: dict[str, None] = field(default_factory=dict[str, None])
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    titles: dict[str, str] = field(default_factory=dict[str, str])
    summaries: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The id of a conversation's last line, and its summary."""

    def note(self, record: dict[str, Any]) -> None:
        """Store the fields of a message line."""
        self.fields |= {name: text for name in ABOUT if (text := text_of(record.get(name)))}
        if session := text_of(record.get("sessionId")):
            self.ids.pop(session, None)  # the last session named is the file's own
            self.ids[session] = None

    @property
    def meta(self) -> str:
        """JSON text of the fields that the transcript has no attribute for."""
        about = {name: value for name, value in self.fields.items() if name != "cwd"}
        if len(self.ids) > 1:
            about["sessions"] = [*self.ids]
        return meta_text(about)


@dataclass(slots=True)
class _SentRequests:
    """Records of the requests that the tool sent."""

    shapes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """System prompts with tools by hash."""
    hashes: dict[str, str] = field(default_factory=dict[str, str])
    """That hash for each request by its id."""
    cost_usd: float = 0.0

    def take(self, kind: str, record: dict[str, Any]) -> None:
        """Note a line of the kinds `_REQUEST_RECORDS`."""
        if kind == "api-request-shape":
            self.shapes[text_of(record.get("shapeHash"))] = mapping(record.get("shape"))
        elif kind == "api-request":
            self.hashes[text_of(record.get("id"))] = text_of(record.get("shapeHash"))
        elif isinstance(cost := record.get("totalCostUSD"), (int, float)):
            self.cost_usd = max(self.cost_usd, float(cost))  # counts on when a session is resumed

    def facts_of(self, record: dict[str, Any], chain: Chain) -> dict[str, Any]:
        """Return the facts with the request that a message answers, if the one before had another prompt or tools."""
        name = self.hashes.get(text_of(record.get("requestRef")), "")
        shape = self.shapes.get(name)
        if shape is None or chain.request == name:
            return {}
        chain.request = name
        return {IMPORTED_REQUEST: {"system": content_text(shape.get("system")), "tools": items_of(shape.get("tools"))}}


@dataclass(slots=True)
class _Agents:
    """The sub-agents' conversations, and the calls that started them."""

    chains: dict[str, Chain] = field(default_factory=dict[str, Chain])
    newest: Chain | None = None
    """That of the last line."""
    calls: dict[str, str] = field(default_factory=dict[str, str])
    """The tool call that started an agent, by the agent's id."""
    answered: set[str] = field(default_factory=set[str])
    """Calls that have their final result."""

    def chain_of(self, record: dict[str, Any], of_parent: Chain | None, *, rootless: bool) -> Chain:
        """Return the chain by its agent's id, the line's parent, or a new one for a new root."""
        name = text_of(record.get("agentId"))
        if not name and of_parent is None and not rootless and self.newest is not None:
            return self.newest
        if not name and of_parent is not None and of_parent.name:
            self.newest = of_parent
            return of_parent
        name = name or text_of(record.get("uuid")) or f"side-{len(self.chains) + 1}"
        self.newest = self.chains.setdefault(name, Chain(name))
        return self.newest


@dataclass(slots=True)
class _FilePass:
    """State of one pass over the file."""

    times: FileTimes
    tally: _Tally
    about: _Description = field(default_factory=_Description)
    requests: _SentRequests = field(default_factory=_SentRequests)
    queue: MessageQueue = field(default_factory=MessageQueue)
    main: Chain = field(default_factory=Chain)
    agents: _Agents = field(default_factory=_Agents)
    links: dict[str, tuple[Chain, Link]] = field(default_factory=dict[str, tuple[Chain, Link]])
    """Where the children of a line attach, by the line's id."""
    boundaries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Compaction boundaries by id."""
    compacted: dict[str, int] = field(default_factory=dict[str, int])
    """The node of a compaction whose summary was read, by the id of its boundary."""
    contents: dict[str, int] = field(default_factory=dict[str, int])
    """Hash of each message line's content by key."""
    after: str = ""
    """Parent of the first message, if another file has it."""
    ended: bool = False

    def link(self, uuid: str, chain: Chain, link: Link, *, is_hook: bool = False) -> None:
        """Store where the children of a line attach; the first line of an id counts."""
        if uuid:
            self.links.setdefault(uuid, (chain, Link(link.node, link.cleared, link.boundary, uuid, is_hook)))

    def note(self, record: dict[str, Any]) -> None:
        """Store what a message line says about the session, and count its fields that are not imported."""
        self.about.note(record)
        self.tally.omitted.update([name for name in record if name not in IMPORTED])


def read(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the file's conversation. Raises UnreadableFile if no line is an event of Claude Code."""
    tally = _Tally()
    file = _FilePass(FileTimes(path, tally.problems), tally)
    for row in read_json_lines(path, on_read):
        tally.lines += 1
        _take(file, row)
    if not file.contents and all(kind.startswith("(") for kind in tally.counted):
        raise UnreadableFile(f"{path} contains no event of Claude Code (give one of its session files)")
    about = file.about
    session = next(reversed(about.ids), path.stem)
    main = _conversation(file, file.main, session)
    sides = tuple(_conversation(file, chain, chain.name) for chain in file.agents.chains.values() if chain.nodes)
    if len(sides) == 1 and not file.main.nodes:  # the file of one sub-agent
        main = replace(sides[0], source_id=f"{session}+{sides[0].source_id}", parent=session)
        sides = ()
    title = next((text for leaf, text in reversed(about.summaries) if leaf in file.links and text), "")
    yield replace(
        main,
        title=about.titles.get("custom-title") or about.titles.get("ai-title") or title,
        sidechains=sides,
        after=file.after,
        report=FileReport(
            lines=tally.lines,
            message_lines=sum(path.report.message_lines for path in (main, *sides)) - tally.unlined,
            counted=dict(+tally.counted),
            omitted=dict(tally.omitted),
            problems=tuple(tally.problems),
            cost_usd=file.requests.cost_usd,
        ),
        meta=about.meta,
    )


def _take(file: _FilePass, row: JsonLine) -> None:
    if row.problem:
        file.tally.problems.append(row.problem)
    record = mapping(row.value)
    kind = text_of(record.get("type"))
    if row.kind or not kind:
        file.tally.counted[row.kind or "(no event)"] += 1
        if not row.kind:
            file.tally.trouble(row.line, "no event", "skipped: JSON, but no event of Claude Code")
        return
    if kind in ("user", "assistant"):
        _take_message(file, row.line, record, kind)
        return
    subtype = text_of(record.get("subtype"))
    file.ended = file.ended or subtype in _ENDS
    is_of_agent = kind == "progress" and _take_agent_messages(file, row.line, record)
    if is_of_agent or (kind == "attachment" and _take_attachment(file, row.line, record)):
        return
    file.tally.counted[f"{kind}/{subtype}" if subtype else kind] += 1
    if kind == "summary":
        file.about.summaries.append((text_of(record.get("leafUuid")), text_of(record.get("summary"))))
    elif kind in _TITLES:
        file.about.titles[kind] = text_of(record.get(_TITLES[kind]))
    elif kind == "queue-operation":
        file.queue.apply(row.line, record)
    elif kind in _REQUEST_RECORDS:
        file.requests.take(kind, record)
    if uuid := text_of(record.get("uuid")):
        chain, link = _place(file, row.line, record)
        if (kind, subtype) == ("system", "compact_boundary"):
            file.boundaries.setdefault(uuid, record)
            file.contents.setdefault(uuid, 0)
            link = Link(link.node, boundary=uuid)
        file.link(uuid, chain, link, is_hook=kind == "progress" or link.is_hook)


def _take_agent_messages(file: _FilePass, line: int, record: dict[str, Any]) -> bool:
    """Add the message that a sub-agent's progress line contains to its conversation; return false without one."""
    data = mapping(record.get("data"))
    event, *others = map(_without_parent, (data.get("message"), *items_of(data.get("normalizedMessages"))))
    agent = text_of(data.get("agentId"))
    kind = text_of(event.get("type"))
    if not agent or kind not in ("user", "assistant"):
        return False
    if call := text_of(record.get("parentToolUseID")):
        file.agents.calls.setdefault(agent, call)
    about = {name: record[name] for name in ("sessionId", *ABOUT) if name in record}
    side = {**about, "isSidechain": True, "agentId": agent}
    # Texts before the calls of a message have no line: only this list contains them.
    for other in others:
        parts = items_of(mapping(other.get("message")).get("content"))
        kinds = {text_of(mapping(part).get("type")) for part in parts}
        is_text = other.get("type") == "assistant" and kinds == {"text"}
        uuid = text_of(other.get("uuid"))
        if is_text and uuid and uuid != event.get("uuid") and uuid not in file.contents:
            before = len(file.contents) + file.tally.counted.total()
            _take_message(file, line, {**other, **side}, "assistant")
            file.tally.unlined += len(file.contents) + file.tally.counted.total() - before
    _take_message(file, line, {**event, **side}, kind)
    chain, link = _place(file, line, record)
    file.link(text_of(record.get("uuid")), chain, link, is_hook=True)
    return True


def _without_parent(event: Any) -> dict[str, Any]:
    """Return an agent's event without its parent, which is of another list: an agent's messages follow each other."""
    return {name: value for name, value in mapping(event).items() if name != "parentUuid"}


def _take_attachment(file: _FilePass, line: int, record: dict[str, Any]) -> bool:
    """Add a message that reached the agent while it was working; return false for other attachments."""
    attachment = mapping(record.get("attachment"))
    prompt = attachment.get("prompt")
    if attachment.get("type") != "queued_command" or not prompt:
        return False
    event = user_event(record, prompt)
    if text_of(mapping(attachment.get("origin")).get("kind")) not in ("", "human"):
        event["isMeta"] = True
    _take_message(file, line, event, "user")
    return True


def _add_sent(file: _FilePass, chain: Chain, link: Link) -> Link:
    """Add the queued messages that the agent's next message follows; return where that one attaches."""
    for queued in file.queue.take_sent():
        key = _key(file, "", queued.record)
        try:
            at_ms = file.times.read(queued.line, queued.record.get("timestamp"))
            messages = _messages_of(queued.event, "user", key, chain.calls, at_ms)
        except (BadReply, RecursionError) as error:
            file.tally.trouble(queued.line, "damaged message", str(error) or "nested too deeply")
            continue
        link = Link(chain.add(link, Step(pieces=(TranscriptPiece(key, messages),), at_ms=messages[0].at_ms)))
        file.tally.counted["queue-operation"] -= 1
    return link


def _place(file: _FilePass, line: int, record: dict[str, Any]) -> tuple[Chain, Link]:
    """Return the chain of a line and where the line attaches to it."""
    logical = text_of(record.get("logicalParentUuid"))
    parent = text_of(record.get("parentUuid")) or logical
    attached = file.links.get(parent)
    chain = file.main
    if record.get("isSidechain") is True:
        chain = file.agents.chain_of(record, attached[0] if attached else None, rootless=not parent)
    if attached and attached[0] is chain:
        return chain, attached[1]
    # A second line without a parent begins a cleared conversation.
    if not parent:
        return chain, Link(chain.last, cleared="parentUuid" in record and chain.last != START)
    # A sub-agent's first line may name its parent in the chain that started it.
    if attached and chain is not file.main and chain.last == START:
        return chain, Link(START)
    if chain is file.main and chain.last == START:
        file.after = file.after or parent
    where = "not in the file before it"
    if attached:
        where = "in another chain"
    joined = "it begins the conversation here"
    if chain.last != START:
        joined = "joined to the message before it"
    file.tally.trouble(line, "broken link", f"its parent {parent} is {where}: {joined}")
    return chain, Link(chain.last)


def _take_message(file: _FilePass, line: int, record: dict[str, Any], kind: str) -> None:
    uuid = text_of(record.get("uuid"))
    body = mapping(record.get("message"))
    chain, link = _place(file, line, record)
    if kind == "assistant" and (record.get("isApiErrorMessage") is True or body.get("model") == SYNTHETIC):
        _take_notice(file, line, record, uuid, chain, link)
        return
    try:
        key = _key(file, uuid, record)
        if not key:
            file.tally.trouble(line, "duplicate", f"line {uuid} repeated with the same content")
            file.tally.counted["(duplicate)"] += 1
            return
        at_ms = file.times.read(line, record.get("timestamp"))
        messages = _messages_of(record, kind, key, chain.calls, at_ms)
    except (BadReply, RecursionError) as error:
        file.tally.trouble(line, "damaged message", str(error) if isinstance(error, BadReply) else "nested too deeply")
        file.tally.counted["(damaged message)"] += 1
        file.link(uuid, chain, link)
        return
    if uuid not in ("", key):
        file.tally.trouble(line, "duplicate", f"two different lines with the id {uuid}: both imported")
    file.note(record)
    stop = text_of(body.get("stop_reason"))
    file.ended = stop in _ENDS
    if chain is file.main:
        file.queue.note_line(content_text(body.get("content")) if kind == "user" else "")
    is_summary = record.get("isCompactSummary") is True
    link = _behind_boundary(file, line, link, is_summary=is_summary)
    if is_summary:
        place = _add_compaction(file, chain, link, key, messages)
        if not all(isinstance(part, Text) for message in messages for part in message.parts):
            file.tally.trouble(line, "summary", "compaction summary with more than text: only the text was imported")
    elif kind == "assistant":
        usage = None
        if body.get("usage"):
            usage = anthropic.usage(body["usage"])
        if chain is file.main and messages[0].id not in chain.by_message:
            link = _add_sent(file, chain, link)
        place = chain.add_assistant(link, messages[0], key, usage, stop, file.requests.facts_of(record, chain))
    else:
        place = _add_user(
            file.agents, chain, link, record, Step(pieces=(TranscriptPiece(key, messages),), at_ms=messages[0].at_ms)
        )
    file.link(uuid, chain, Link(place))


def _behind_boundary(file: _FilePass, line: int, link: Link, *, is_summary: bool) -> Link:
    """Return where a message attaches that follows a compaction boundary; unchanged for any other message."""
    if link.boundary in file.compacted:
        return Link(file.compacted[link.boundary])
    if not link.boundary or is_summary:
        return link
    file.tally.trouble(
        line, "compaction without summary", "later messages start a new conversation, as in the tool itself"
    )
    return Link(link.node, cleared=link.node != START)


def _take_notice(file: _FilePass, line: int, record: dict[str, Any], uuid: str, chain: Chain, link: Link) -> None:
    """Count a notice that the tool wrote in the model's place; an error of the API is the failure of a turn."""
    is_error = record.get("isApiErrorMessage") is True
    file.tally.counted["assistant/api_error" if is_error else "assistant/synthetic"] += 1
    file.note(record)
    if is_error and chain.last != START and uuid not in file.links:
        text = content_text(mapping(record.get("message")).get("content"))
        facts = {"error": text, "kind": failure_of(RuntimeError(text)).kind}
        pieces = (TranscriptPiece(uuid or f"line-{_digest(record)}"),)
        step = Step("failed", pieces, at_ms=file.times.read(line, record.get("timestamp")), facts=facts)
        link = Link(chain.add(link, step), boundary=link.boundary)
    file.link(uuid, chain, link)


def _add_user(agents: _Agents, chain: Chain, link: Link, record: dict[str, Any], step: Step) -> int:
    """Add a user's message, or results to the message with their calls; return where the next line attaches."""
    outcome = mapping(record.get("toolUseResult"))
    results = [part.call_id for message in step.messages for part in message.results()]
    if agent := text_of(outcome.get("agentId")):
        agents.calls.update((agent, call) for call in results)
    if outcome.get("status") != "async_launched":
        agents.answered.update(results)
    # Parallel calls have several lines of results.
    place = chain.add_results(step)
    if place is None:
        return chain.add(link, step, inserted=record.get("isMeta") is True)
    return max(place, link.node)  # the assistant may have gone on before the result came


def _key(file: _FilePass, uuid: str, record: dict[str, Any]) -> str:
    """Return the line's id, or one from its content if it has none or shares it; empty for a repeated line."""
    message = record.get("message")
    content = _content_hash(message)
    key = uuid or f"line-{_digest(record)}"
    if key in file.contents and not uuid:
        key = next(
            name for number in range(2, file.tally.lines + 2) if (name := f"{key}#{number}") not in file.contents
        )
    elif key in file.contents:
        if file.contents[key] == content:
            return ""
        key = f"{key}#{_digest(message)}"
        if key in file.contents:
            return ""
    file.contents[key] = content
    return key


def _add_compaction(file: _FilePass, chain: Chain, link: Link, key: str, messages: tuple[Message, ...]) -> int:
    boundary = file.boundaries.get(link.boundary, {})
    about = mapping(boundary.get("compactMetadata"))
    pieces = (TranscriptPiece(key),)
    if boundary:
        pieces = (TranscriptPiece(link.boundary), *pieces)
        file.tally.counted["system/compact_boundary"] -= 1
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


def _conversation(file: _FilePass, chain: Chain, source_id: str) -> Transcript:
    call = file.agents.calls.get(chain.name, "")
    steps, forks = paths(chain, ended=file.ended)
    if steps and chain is not file.main and call in file.agents.answered:
        steps = (*steps[:-1], replace(steps[-1], closes_turn=True))
    added = (step for node in chain.nodes for step in (node.first, *node.results))
    lines = sum(len(step.pieces) for step in added if step.kind != "failed")
    models = (message.model for step in reversed(steps) for message in step.messages)
    return Transcript(
        format="claude_code",
        unique_keys=True,
        source_id=source_id,
        steps=steps,
        forks=forks,
        report=FileReport(lines, lines),
        call_id=call,
        model=next(filter(None, models), ""),
        cwd=text_of(file.about.fields.get("cwd")),
        undated_ms=file.times.undated_ms,
    )


def _messages_of(record: dict[str, Any], kind: str, key: str, calls: CallIndex, at_ms: int) -> tuple[Message, ...]:
    """Return the line's messages with id, time, source and meta. Raises BadReply without one."""
    body = mapping(record.get("message"))
    if not body:
        raise BadReply("event without `message`")
    # Usage and stop reason belong to the model call, so they go into the step.
    fields = {name: value for name, value in body.items() if name not in ("usage", "stop_reason")}
    messages = anthropic.received_message({**fields, "role": kind}, calls)
    meta = {name: record[name] for name in _IN_META if record.get(name)}
    if kind == "assistant" and body.get("stop_reason"):
        meta["stop_reason"] = body["stop_reason"]
    # Lines of one assistant's message share its id.
    if kind == "assistant":
        ids = (messages[0].id or key,)
    else:
        ids = (key, f"{key}:rest")
    joined: list[Message] = []
    for message, message_id in zip(messages, ids, strict=False):
        source = _source_of(record, message)
        joined.append(replace(message, id=message_id, at_ms=at_ms, source=source, meta=with_meta(message.meta, meta)))
    return tuple(joined)


def _source_of(record: dict[str, Any], message: Message) -> str:
    """Return who wrote a user's message; empty for any other message."""
    if message.role != "user":
        return ""
    if record.get("isMeta") is True:
        return "hook"
    if message.text().startswith(_INTERRUPTED):
        return "interrupt"
    if record.get("isSidechain") is True:
        return "agent"
    return "human"


def _content_hash(value: Any) -> int:
    """Return a number that is the same for the same JSON value, in this process."""
    try:
        return hash(_encode(value))
    except UnicodeEncodeError:  # lone surrogates
        return hash(compact_json(value))


def _digest(value: Any) -> str:
    """Return sixteen hexadecimal digits for a JSON value."""
    return hashlib.sha256(compact_json(value).encode(errors="surrogatepass")).hexdigest()[:16]


READER = FileReader(read)
