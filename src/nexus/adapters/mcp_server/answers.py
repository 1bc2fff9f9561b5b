"""Answers of the MCP server's tools: pages of at most `ANSWER_TOKENS`, of sessions that their caller may see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from nexus.adapters.mcp_server.definitions import (
    ContextArguments,
    ReadArguments,
    RecallArguments,
    RememberArguments,
    SearchArguments,
    ToolArguments,
)
from nexus.agents.tools.history import message_body
from nexus.context import AssembledContext
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.engine.preparation import check_trusted
from nexus.errors import BadFact, BadReference, BadSetting, NoSuchSession, NotAllowed
from nexus.ledger.erasure_extent import principals_in
from nexus.ledger.replay import entries_from_turn
from nexus.ledger.search_text import best_excerpt, parse_query
from nexus.ledger.sessions import Query, SearchHit
from nexus.ledger.store import LedgerStore
from nexus.policy import Policy
from nexus.policy.authorization import owning_names, session_person
from nexus.policy.decision import applied_toolsets, denial_reason, role_of
from nexus.policy.principals import PolicyMatch, check_owner, match_policy, principal_session
from nexus.render.report import omission_lines
from nexus.render.window import conversation_contents
from nexus.text.one_line import collapse_whitespace
from nexus.types.ledger_entries import Entry, MessageRef, StoredMessage
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import CallArguments
from nexus.types.tool_definition import ToolMetadata
from nexus.workspace.memory.facts import SECTION

Answer: TypeAlias = dict[str, Any]

ANSWER_TOKENS = 2_000
_USABLE_TOKENS = 1_900
"""Tokens of an answer's rows. The rest is for its names and the cursor."""

_ROW_TOKENS = 40
"""Tokens kept for the place, role and time of a message."""

_LEAST_TOKENS = 150
"""Tokens below which a message is left to the next page instead of being split."""

_LONGEST_PAGE = 40_000
"""Characters of which one page can have more in no script."""

HITS = 12
"""Hits of a page, at most."""
SCANNED_HITS = 2_000
"""Messages that a search looks at, at most, to find some that its caller may see."""

MOST_WORDS = 24
EXCERPT_BEFORE = 160
EXCERPT_CHARS = 480
NAME_CHARS = 100
MOST_KINDS = 12
MOST_NOTES = 6
LISTED = 1_000
"""Facts and sessions that are listed, at most."""

_OFFSET = re.compile(r"\d{1,6}")
_PLACE = re.compile(r"(\d{1,12})\.(\d{1,9}):(\d{1,12})")
_MESSAGE = re.compile(r"(\d{1,12})\.(\d{1,9})")
_RANGE = re.compile(r"(\d{1,12})(?:\.\d{1,9})?\s*(?:-|–|\.\.|to)\s*(\d{1,12})(?:\.\d{1,9})?")
_ENTRY = re.compile(r"(?:entry )?(\d{1,12})")
_TURNS = re.compile(r"turns? (\d{1,9})(?:\s*-\s*(\d{1,9}))?", re.IGNORECASE)

_Row: TypeAlias = tuple[Entry, StoredMessage]


class _Position(Struct, frozen=True, order=True):
    """A message, and the characters of it that were read already."""

    ref: MessageRef = MessageRef(0, 0)
    chars: int = 0


class SessionPrincipals:
    """The principals who spoke in the sessions of a ledger: each entry is read once."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._by_thread: dict[int, tuple[int, set[str]]] = {}
        """The newest entry that was read, and the principals up to it."""

    def of(self, label: str) -> set[str]:
        """Return the principals of a session's calls; none if no call has one."""
        thread = self._store.thread_of(label)
        if thread is None:
            return set()
        last_seq, principals = self._by_thread.get(thread, (0, set[str]()))
        head_seq = self._store.thread(thread).head_seq
        if head_seq > last_seq:
            principals = principals | principals_in(self._store.entries(thread, last_seq, head_seq))
            self._by_thread[thread] = (head_seq, principals)
        return principals


class McpAnswers:
    """The answers to one caller.

    Args:
        engine: The engine of the caller's tenant.
        principal: Whose sessions are shown; empty for all sessions of the tenant. They are those in which this principal
            alone spoke, and those without a principal that the policy or a `dm:` name gives to it.
        has_memory: Whether the workspace's memory is the caller's.
        session_principals: Who spoke in which session, kept between calls.
    """

    def __init__(
        self,
        engine: Engine,
        principal: str = "",
        *,
        has_memory: bool = True,
        session_principals: SessionPrincipals | None = None,
    ) -> None:
        self._engine = engine
        self._principal = principal
        self._has_memory = has_memory
        self._session_principals = session_principals or SessionPrincipals(engine.ledger.store)

    def call(self, name: str, arguments: ToolArguments) -> Answer:
        """Return the answer of a tool. Raises NexusError."""
        reason = self.denial(name)
        if reason:
            raise NotAllowed(f"tool {name!r} not allowed: {reason}")
        check_trusted(self._engine.ledger.store)
        match arguments:
            case SearchArguments():
                return self._search(arguments)
            case ReadArguments():
                return self._read(arguments)
            case ContextArguments():
                return self._context(arguments)
            case RecallArguments():
                return self._recall(arguments)
            case RememberArguments():
                return self._remember(arguments)

    def denial(self, name: str) -> str:
        """Return why the caller may not use a tool; empty if it may."""
        if name in ("recall", "remember") and not self._has_memory:
            return "there is no memory here (it needs a workspace of your own)"
        if not self._principal:
            return ""
        matches = self._matches()
        role = role_of("unified", matches)
        return denial_reason(ToolMetadata(name), role, matches, applied_toolsets("", role, matches))

    # who may see what --------------------------------------------------------------------------------------------

    def _matches(self) -> list[PolicyMatch]:
        policies = self._engine.preparation.policies.read() or (Policy(),)
        return [match_policy(policy, self._principal) for policy in policies]

    def _is_visible(self, label: str) -> bool:
        """Return True for a session that is not deleted and, with a principal, is the principal's own."""
        store = self._engine.ledger.store
        update = store.session(label)
        if update is not None and update.metadata.status == "deleted":
            return False
        if not self._principal:
            return True
        matches = self._matches()
        try:
            check_owner(label, self._principal, matches, partial(owning_names, store))
            principals = self._session_principals.of(label)
            if principals:
                return principals == {self._principal}
            own_session = principal_session(self._principal, matches)
            return label == own_session or session_person(store, label) == self._principal
        except (NotAllowed, BadSetting):
            return False

    def _label(self, session: str) -> str:
        """Return the label of a session that the caller may see. Raises NoSuchSession, which is no news about others."""
        label = self._engine.ledger.resolve(session)
        if label is None or not self._is_visible(label):
            name = sanitize_text(session[:NAME_CHARS])
            raise NoSuchSession(f"session {name!r} not found (list sessions: search without a query)")
        return label

    def _sessions(self) -> Iterator[Any]:
        """Yield the sessions that the caller may see, newest first."""
        offset = 0
        while page := self._engine.sessions(limit=100, offset=offset):
            yield from (info for info in page if self._is_visible(info.label))
            offset += len(page)

    # search ------------------------------------------------------------------------------------------------------

    def _search(self, arguments: SearchArguments) -> Answer:
        offset = _offset(arguments.cursor)
        label = self._label(arguments.session) if arguments.session else ""
        if not arguments.query.strip():
            return self._page("hits", islice(map(_session_row, self._sessions()), LISTED), offset)
        phrases = parse_query(arguments.query)[:MOST_WORDS]
        if not phrases:
            raise BadReference("query has no words: punctuation alone is not searched (use words of the message)")
        with self._engine.ledger.snapshot():
            rows = (_hit_row(hit, names, phrases) for hit, names in self._hits(arguments, label, phrases))
            return self._page("hits", rows, offset, HITS)

    def _hits(
        self, arguments: SearchArguments, label: str, phrases: list[list[str]]
    ) -> Iterator[tuple[SearchHit, list[str]]]:
        """Yield the messages that the caller may see, with their visible sessions, the best first."""
        store = self._engine.ledger.store
        text = " ".join(f'"{" ".join(phrase)}"' for phrase in phrases)
        roles: Any = (arguments.role,) if arguments.role else ()
        visible = dict[str, bool]()
        scanned = 0
        limit = _offset(arguments.cursor) + HITS + 1
        while scanned < SCANNED_HITS:
            hits = store.search(Query(text, label, roles, limit, scanned, any_word=True))
            for hit in hits:
                for name in hit.sessions:
                    if name not in visible:
                        visible[name] = self._is_visible(name)
                names = [name for name in hit.sessions if visible[name]]
                if names:
                    yield hit, [label] if label else names
            if len(hits) < limit:
                return
            scanned += limit
            limit = 500

    # reading -----------------------------------------------------------------------------------------------------

    def _read(self, arguments: ReadArguments) -> Answer:
        label = self._label(arguments.session)
        start = _position(arguments.cursor)
        messages: list[Answer] = []
        room = _USABLE_TOKENS
        cursor = ""
        for entry, row in self._rows(label, arguments.at.strip().strip("`'\"[] "), start.ref):
            if row.ref < start.ref:
                continue
            chars = start.chars if row.ref == start.ref else 0
            text = sanitize_text(message_body(row.message))[chars:]
            place = f"{row.ref.seq}.{row.ref.ord}"
            piece = self._beginning(text, room - _ROW_TOKENS)
            is_whole = len(piece) == len(text)
            if messages and room < _ROW_TOKENS + (0 if is_whole else _LEAST_TOKENS):
                cursor = f"{place}:{chars}"
                break
            time = _time(row.message.at_ms or entry.at_ms)
            messages.append({"at": place, "role": row.message.role, "time": time, "text": piece})
            if not is_whole:
                cursor = f"{place}:{chars + len(piece)}"
                break
            room -= _ROW_TOKENS + self._tokens(_as_json(piece))
        return {"messages": messages, **({"cursor": cursor} if cursor else {})}

    def _rows(self, label: str, at: str, start: MessageRef) -> Iterator[_Row]:
        """Yield the messages that a reference names, from a place on. Raises BadReference if there is none."""
        ledger = self._engine.ledger
        first_seq = max(start.seq - 1, 0)
        rows: Iterator[_Row]
        if not at:
            return _rows_of(ledger.iter_entries(label, first_seq))
        if parts := _MESSAGE.fullmatch(at):
            seq = int(parts[1])
            order = int(parts[2])
            entries = ledger.iter_entries(label, max(seq - 1, 0), seq)
            rows = (row for row in _rows_of(entries) if row[1].ref == MessageRef(seq, order))
        elif parts := _RANGE.fullmatch(at) or _ENTRY.fullmatch(at):
            first = int(parts[1])
            last = min(int(parts[parts.lastindex or 1]), ledger.thread_info(label).head_seq)
            rows = _rows_of(ledger.iter_entries(label, max(first - 1, first_seq, 0), last))
        elif parts := _TURNS.fullmatch(at):
            first = int(parts[1])
            last = int(parts[2] or first)
            entries = entries_from_turn(ledger.store, ledger.thread(label), first)
            rows = (row for row in _rows_of(entries) if first <= row[0].turn <= last)
        else:
            rows = (row for row in _rows_of(ledger.iter_entries(label)) if _has_call(row[1], at))
        some = next(rows, None)
        if some is None:
            reference = sanitize_text(at[:NAME_CHARS])
            raise BadReference(
                f"{reference!r} not found in session {label!r} (use `12.0` as search names it, a range `12-20`, `turn 3`, a "
                "tool call's id, or leave `at` out)"
            )
        return _chained(some, rows)

    # the window --------------------------------------------------------------------------------------------------

    def _context(self, arguments: ContextArguments) -> Answer:
        offset = _offset(arguments.cursor)
        if arguments.session:
            label = self._label(arguments.session)
        else:
            newest = next(self._sessions(), None)
            if newest is None:
                raise NoSuchSession("no session yet (import one: nexus import, or record one: nexus proxy)")
            label = newest.label
        engine = self._engine
        model, profile = engine.calls.last_settings(label)
        options: CallArguments = {"model": model, "profile": profile}
        if self._principal:
            options["principal"] = self._principal
        ctx = engine.assemble(NEXT_MESSAGE, session=label, **options)
        rows = (
            {"layer": line.layer, "name": _short(line.name), "source": _short(line.source), "tokens": line.tokens}
            for line in ctx.accounting.token_breakdown
        )
        head: Answer = {"session": label}
        if not offset:
            head |= self._window(ctx)
        return self._page("blocks", rows, offset, head=head)

    def _window(self, ctx: AssembledContext) -> Answer:
        """Return what the first page of a window has besides its blocks."""
        contents, largest = conversation_contents(ctx, self._engine.counter)
        return {
            "model": ctx.model,
            "available": ctx.token_budget.available,
            "used": ctx.token_budget.used.total,
            "conversation": [
                {"kind": part.kind, "name": _short(part.name), "count": part.count, "tokens": part.tokens}
                for part in contents[:MOST_KINDS]
            ],
            "results": [
                {"tool": _short(result.tool), "call": _short(result.call_id), "tokens": result.tokens}
                for result in largest
            ],
            "why": [_short(note, 3 * NAME_CHARS) for note in _reasons(ctx)][:MOST_NOTES],
        }

    # memory ------------------------------------------------------------------------------------------------------

    def _recall(self, arguments: RecallArguments) -> Answer:
        offset = _offset(arguments.cursor)
        book = self._engine.memory.notebook()
        if arguments.query.strip():
            if not parse_query(arguments.query):
                raise BadReference("query has no words: punctuation alone is not searched (use words of the fact)")
            matches = book.search(arguments.query, LISTED)
            rows = (_fact_row(match.origin, match.section, match.at, match.text) for match in matches)
        else:
            rows = (_fact_row(book.file, fact.section, fact.date, fact.text) for fact in book.facts())
        return self._page("facts", rows, offset)

    def _remember(self, arguments: RememberArguments) -> Answer:
        try:
            added = self._engine.memory.notebook().add(arguments.fact, section=arguments.section or SECTION)
        except BadFact as error:
            if not error.kinds:
                raise
            kinds = ", ".join(error.kinds)
            raise BadFact(f"not remembered: the fact seems to contain a secret ({kinds}; leave it out)") from error
        return {"file": added.file, "number": added.number, "notes": list(added.warnings)}

    # pages -------------------------------------------------------------------------------------------------------

    def _page(
        self, name: str, rows: Iterator[Answer], offset: int, limit: int = LISTED, head: Answer | None = None
    ) -> Answer:
        """Return the rows from an offset on that fit into an answer, with a cursor if there are more."""
        page: list[Answer] = []
        answer: Answer = {**(head or {}), name: page}
        room = _USABLE_TOKENS - self._tokens(msgspec.json.encode(head or {}).decode())
        for number, row in enumerate(islice(rows, offset, None), offset):
            clean_row = _sanitized(row)
            size = self._tokens(msgspec.json.encode(clean_row).decode())
            if size > room and not page:  # one row that is too long for any page
                text = self._beginning(clean_row.get("text", ""), room - _LEAST_TOKENS)
                clean_row = {**clean_row, "text": f"{text} …"}
                size = room
            if size > room or len(page) == limit:
                answer["cursor"] = str(number)
                break
            page.append(clean_row)
            room -= size
        return answer

    def _tokens(self, text: str) -> int:
        return self._engine.counter.count(text)

    def _beginning(self, text: str, tokens: int) -> str:
        """Return as much of a text's beginning as a JSON string of so many tokens has."""
        piece = text[:_LONGEST_PAGE]
        size = self._tokens(_as_json(piece))
        while piece and size > tokens:
            chars = int(len(piece) * max(tokens, 0) / size * 0.97)
            piece = piece[:chars]
            size = self._tokens(_as_json(piece))
        return piece


def _as_json(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _rows_of(entries: Iterable[Entry]) -> Iterator[_Row]:
    for entry in entries:
        for row in entry.rows:
            yield entry, row


def _chained(first: _Row, others: Iterator[_Row]) -> Iterator[_Row]:
    yield first
    yield from others


def _has_call(row: StoredMessage, call_id: str) -> bool:
    calls = row.message.calls()
    return any(call.id == call_id for call in calls) or any(
        result.call_id == call_id for result in row.message.results()
    )


def _offset(cursor: str) -> int:
    """Return the number of rows that were shown already. Raises BadReference."""
    if not cursor:
        return 0
    if not _OFFSET.fullmatch(cursor):
        raise _bad_cursor(cursor)
    return int(cursor)


def _position(cursor: str) -> _Position:
    """Return where reading goes on. Raises BadReference."""
    if not cursor:
        return _Position()
    parts = _PLACE.fullmatch(cursor)
    if parts is None:
        raise _bad_cursor(cursor)
    return _Position(MessageRef(int(parts[1]), int(parts[2])), int(parts[3]))


def _bad_cursor(cursor: str) -> BadReference:
    return BadReference(
        f"cursor {sanitize_text(cursor)!r} is none of this tool (use the one of its last answer, or none)"
    )


def _session_row(info: Any) -> Answer:
    text = f"{info.title or 'no title'} (turns: {info.turns:,}, messages: {info.messages:,})"
    return {"session": info.label, "at": "", "role": "", "time": _time(info.last_ms), "text": text}


def _hit_row(hit: SearchHit, names: Sequence[str], phrases: list[list[str]]) -> Answer:
    return {
        "session": names[0],
        "at": f"{hit.ref.seq}.{hit.ref.ord}",
        "role": hit.role,
        "time": _time(hit.at_ms),
        "text": collapse_whitespace(best_excerpt(hit.text, phrases, EXCERPT_BEFORE, EXCERPT_CHARS)),
    }


def _fact_row(file: str, section: str, date: str, text: str) -> Answer:
    return {"file": file, "section": section, "date": date, "text": text}


def _reasons(ctx: AssembledContext) -> Iterator[str]:
    """Yield why the window is as it is: what is omitted, why the cache breaks, and warnings."""
    for line in omission_lines(ctx):
        yield f"Omitted: {line.strip()}"
    for cause in ctx.accounting.prefix.causes:
        yield f"The prefix of the prompt moved because {cause}."
    for warning in ctx.warnings:
        yield f"{warning.source}: {warning.message}"


def _short(text: str, chars: int = NAME_CHARS) -> str:
    line = sanitize_text(collapse_whitespace(text[: 2 * chars]))
    if len(line) <= chars:
        return line
    return f"{line[:chars]}…"


def _sanitized(row: Answer) -> Answer:
    return {name: sanitize_text(value) if isinstance(value, str) else value for name, value in row.items()}


def _time(at_ms: int) -> str:
    """Return a time in UTC; empty for none."""
    if not at_ms:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # imported files may contain any number
        return ""
