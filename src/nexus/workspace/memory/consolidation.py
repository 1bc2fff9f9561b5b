"""Consolidation of sessions into memory: facts are proposed, stored, and accepted or rejected.

`.nexus/memory-proposals.json` has the proposals that wait for a decision and the texts of rejected ones. Facts that memory has,
that a person forgot, undid or rejected, and that a newer fact replaced are not proposed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadFact, NotFound, UnreadableFile
from nexus.ledger.history_operations import Ledger
from nexus.ledger.replay import conversation_rows
from nexus.policy.authorization import session_person
from nexus.summarization.extractive.statements import truncate_line
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Entry, StoredMessage
from nexus.workspace.memory import files
from nexus.workspace.memory.changes import PROFILE, Change, StoredFact
from nexus.workspace.memory.facts import Fact, with_fact
from nexus.workspace.memory.model_proposals import Ask, propose_by_model
from nexus.workspace.memory.notebook import Notebook
from nexus.workspace.memory.proposals import (
    Proposal,
    fact_key,
    newest,
    propose_by_rule,
    replaced_facts,
    user_text,
)

Target: TypeAlias = Literal["memory", "log", "profile"]

STORE = ".nexus/memory-proposals.json"
MAX_PENDING = 300
MAX_REJECTED = 2_000
TASK_CHARS = 200

_REMOVED = re.compile(r"^(?:Forgotten|Replaced|Undone)(?: \(.*?\))?: ")  # before the text of a fact in the log


class Proposals(Struct, frozen=True):
    """Result of `propose`: the proposals that wait for a decision, and dropped answers of a model by reason."""

    proposals: tuple[Proposal, ...]
    dropped: dict[str, int] = {}


class Accepted(Struct, frozen=True):
    """Result of `accept`: the change to memory (None if only the log grew), and the accepted proposals."""

    change: Change | None
    proposals: tuple[Proposal, ...]
    waiting: tuple[Proposal, ...] = ()
    """Proposals that wait on: they are for a profile, and it is unknown whose they are."""


class Consolidation(Struct, frozen=True):
    """Result of `consolidate`: the session's proposals that wait, and the change that added facts, if any."""

    proposed: int = 0
    change: Change | None = None

    def __str__(self) -> str:
        if self.change is not None:
            return f"{_count(len(self.change.added))} added to memory (revert: nexus memory undo {self.change.number})"
        if self.proposed:
            return f"{_count(self.proposed)} proposed: nexus memory propose"
        return ""


class _Store(Struct, frozen=True):
    pending: tuple[Proposal, ...] = ()
    rejected: tuple[str, ...] = ()
    sessions: dict[str, str] = {}
    """Log entries of sessions with pending proposals."""


def propose(
    book: Notebook,
    ledger: Ledger,
    sessions: Iterable[str],
    *,
    ask: Ask | None = None,
    model: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Proposals:
    """Propose facts from sessions, by their wording or by a model, and store them.

    Args:
        book: The memory that the facts are for.
        ledger: The ledger of the sessions.
        sessions: Labels of sessions; their proposals are returned, all that wait if it is empty.
        ask: Sends a prompt to a model; by default sentences are selected by their wording.
        model: The model's name, which is stored with its proposals.
        progress: Called with the number of finished sessions and of all.

    Raises NoSuchSession, LedgerError, BadReply, MemoryBusy, UnreadableFile, and any error of `ask`.
    """
    labels = list(sessions)
    extracted: list[Proposal] = []
    dropped = Counter[str]()
    entries: dict[str, str] = {}
    for at, label in enumerate(labels):
        stored = ledger.entries(label)
        for principal, rows in _rows_by_principal(ledger, label, stored).items():
            if ask is None:
                proposals = propose_by_rule(rows, label)
            else:
                proposals, reasons = propose_by_model(rows, label, ask, model)
                dropped += reasons
            extracted += [replace(proposal, principal=principal) for proposal in proposals]
        entries[label] = _log_text((row for entry in stored for row in conversation_rows(entry)), label)
        if progress is not None:
            progress(at + 1, len(labels))
    if not extracted and not _read(book).pending:  # reading alone creates no file
        return Proposals((), dict(dropped))
    with files.lock_folder(book.root):
        store = _read(book)
        extracted_ids = {proposal.id for proposal in extracted}
        # Earlier versions did not store whose a proposal is.
        pending = (old for old in store.pending if old.principal is not None or old.id not in extracted_ids)
        waiting = _undecided(book, store, (*pending, *extracted))
        open_labels = {source.session for proposal in waiting for source in proposal.sources}
        texts = {label: text for label, text in {**store.sessions, **entries}.items() if label in open_labels}
        _write(book, replace(store, pending=waiting, sessions=texts))
    return Proposals(_of_sessions(waiting, set(labels)), dict(dropped))


def _of_sessions(proposals: Iterable[Proposal], labels: set[str]) -> tuple[Proposal, ...]:
    """Return the proposals that come from sessions; all without a session."""
    if not labels:
        return tuple(proposals)
    return tuple(proposal for proposal in proposals if any(source.session in labels for source in proposal.sources))


def accept(
    book: Notebook, ids: Iterable[str] | None, to: Target | None = None, ledger: Ledger | None = None
) -> Accepted:
    """Add proposals to memory as one change; all that wait if `ids` is None.

    Facts about a user go to their profile if they have one, all others to the memory file; `to` names another target. A
    profile is that of the principal who stated the fact. If that is unknown, a proposal for a profile waits on; `ledger`
    is asked about proposals that do not say it. Raises NotFound, BadFact, MemoryBusy, UnreadableFile, LedgerError.
    """
    store = _read(book)
    chosen = _chosen(_undecided(book, store, store.pending), ids)
    if ledger is not None:
        chosen = [_with_principal(ledger, proposal) for proposal in chosen]
    waiting: list[Proposal] = []
    if to == "profile" and book.profiles is not None:
        waiting = [proposal for proposal in chosen if not book.profiles.may_have(proposal.principal)]
        chosen = [proposal for proposal in chosen if proposal not in waiting]
    change = None
    if to == "log":
        for proposal in chosen:
            book.append(proposal.text)
    elif chosen:
        added: dict[object, StoredFact] = {}
        removed: dict[object, StoredFact] = {}
        for proposal in chosen:
            fact = _stored_fact(book, proposal, to)
            added.setdefault((fact.file, fact.principal, fact_key(fact.text)), fact)  # two users may state the same
            principals = (proposal.principal,) if proposal.principal is not None else ()
            present = {fact_key(fact.text): fact for fact in book.stored_facts(principals)}
            if (replaced := present.get(fact_key(proposal.replaces))) is not None:
                removed[replaced.key] = replaced
        change = book.revise("accept", added=list(added.values()), removed=list(removed.values()))
    labels = {source.session for proposal in chosen for source in proposal.sources}
    _log_sessions(book, {label: text for label, text in store.sessions.items() if label in labels})
    _remove(book, chosen)
    return Accepted(change, tuple(chosen), tuple(waiting))


def reject(book: Notebook, ids: Iterable[str] | None) -> tuple[Proposal, ...]:
    """Reject proposals, all that wait if `ids` is None: their facts are not proposed again. Raises NotFound."""
    store = _read(book)
    chosen = _chosen(_undecided(book, store, store.pending), ids)
    _remove(book, chosen, rejected=[proposal.text for proposal in chosen])
    return tuple(chosen)


def consolidate(book: Notebook, ledger: Ledger, session: str, mode: Literal["propose", "add"]) -> Consolidation:
    """Propose the facts that a session states, add them at once if `mode` is "add", and note the session in the log."""
    proposals = propose(book, ledger, [session]).proposals
    by_rule = [proposal.id for proposal in proposals if proposal.by == "rule"]
    rows = (row for entry in ledger.entries(session) for row in conversation_rows(entry))
    _log_sessions(book, {session: _log_text(rows, session)})
    if mode == "add" and by_rule:
        return Consolidation(0, accept(book, by_rule, "memory").change)
    return Consolidation(len(proposals))


def log_session(book: Notebook, ledger: Ledger, session: str) -> None:
    """Note a session in the log, unless it has these entries: its dates and first request, and its current summary.

    Raises NexusError, OSError.
    """
    rows = (row for entry in ledger.entries(session) for row in conversation_rows(entry))
    _log_sessions(book, {session: _log_text(rows, session)})
    mark = ledger.live(session).checkpoint
    if mark is None or mark.kind != "compaction":
        return
    head = f"Summary of session {session!r} before entry {mark.seq}:"
    if not any(entry.text.startswith(head) for entry in book.entries()):
        book.append(f"{head}\n{mark.body.get('summary', '')}", force=True)


def _undecided(book: Notebook, store: _Store, proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """Return the proposals that are neither in memory nor declined, each with the fact that it replaces.

    Each user's are compared with the memory file and that user's profile alone.
    """
    facts = book.facts()
    keys = {fact_key(text) for text in (*(fact.text for fact in facts), *store.rejected)}
    keys.update(fact_key(_REMOVED.sub("", entry.text)) for entry in book.entries())
    by_principal: dict[str | None, list[Proposal]] = {}
    for proposal in sorted(proposals, key=lambda proposal: proposal.sources[0].at_ms):
        by_principal.setdefault(proposal.principal, []).append(proposal)
    undecided: list[Proposal] = []
    for principal, stated in by_principal.items():
        lines = book.profile(principal) if principal is not None else []
        stored_keys = keys.union(map(fact_key, lines))
        for proposal in newest(stated):
            if fact_key(proposal.text) in stored_keys or not _is_storable(proposal):
                continue
            replaced = replaced_facts(proposal.text, [*(fact.text for fact in facts), *lines])
            if not _is_outdated(proposal, facts, replaced):
                undecided.append(replace(proposal, replaces=replaced[0] if replaced else ""))
    undecided.sort(key=lambda proposal: proposal.sources[0].at_ms)
    return tuple(undecided[-MAX_PENDING:])


def _rows_by_principal(ledger: Ledger, label: str, entries: Sequence[Entry]) -> dict[str | None, list[StoredMessage]]:
    """Return the messages of a session by the principal of their turn.

    Without one they are those of the person whom the session is for, else the local user's (""); None if other turns of
    the session have principals.
    """
    principals = {entry.turn: principal for entry in entries if (principal := _principal_of(entry))}
    person = session_person(ledger.store, label) or (None if principals else "")
    rows: dict[str | None, list[StoredMessage]] = {}
    for entry in entries:
        rows.setdefault(principals.get(entry.turn, person), []).extend(conversation_rows(entry))
    return rows


def _principal_of(entry: Entry) -> str:
    principal = entry.body.get("principal")
    if isinstance(principal, str):
        return principal
    return ""


def _with_principal(ledger: Ledger, proposal: Proposal) -> Proposal:
    """Return a proposal with its principal, if it lacks it: the only one of its sessions, unless they have others too."""
    labels = {source.session for source in proposal.sources}
    if proposal.principal is not None or not all(map(ledger.resolve, labels)):
        return proposal
    stated = [_rows_by_principal(ledger, label, ledger.entries(label)) for label in labels]
    principals = {principal for rows in stated for principal in rows}
    if len(principals) == 1:
        return replace(proposal, principal=principals.pop())
    return proposal


def _is_storable(proposal: Proposal) -> bool:
    """Return False for a text that Markdown would read as something else, such as a heading."""
    try:
        with_fact("", proposal.text, "2026-01-01", proposal.section)
    except BadFact:
        return False
    return True


def _is_outdated(proposal: Proposal, facts: Sequence[Fact], replaced: Sequence[str]) -> bool:
    """Return True if a fact that the proposal would replace is newer than its message."""
    date = _date(proposal.sources[-1].at_ms)
    return any(fact.date > date > "" for fact in facts if fact.text in replaced)


def _chosen(proposals: Sequence[Proposal], ids: Iterable[str] | None) -> list[Proposal]:
    """Return the proposals with these ids. Raises NotFound."""
    if ids is None:
        return list(proposals)
    by_id = {proposal.id: proposal for proposal in proposals}
    wanted = list(dict.fromkeys(ids))
    if unknown := [name for name in wanted if name not in by_id]:
        names = ", ".join(map(repr, unknown))
        raise NotFound(
            f"no proposal waits with id {names} (list proposals: nexus memory propose; nothing was changed)",
            code="no_such_fact",
        )
    return [by_id[name] for name in wanted]


def _stored_fact(book: Notebook, proposal: Proposal, to: Target | None) -> StoredFact:
    date = _date(proposal.sources[0].at_ms) or book.today()
    principal = proposal.principal or ""
    if to is None:
        is_known = proposal.about == "user" and proposal.principal is not None
        to = "memory"
        if is_known and book.profile(principal):
            to = "profile"
    if to == "profile":
        return StoredFact(PROFILE, "", date, proposal.text, principal)
    return StoredFact(book.file, proposal.section, date, proposal.text)


def _remove(book: Notebook, decided: Iterable[Proposal], rejected: Sequence[str] = ()) -> None:
    """Remove proposals from the store."""
    ids = {proposal.id for proposal in decided}
    with files.lock_folder(book.root):
        store = _read(book)
        waiting = tuple(proposal for proposal in store.pending if proposal.id not in ids)
        texts = tuple(dict.fromkeys((*store.rejected, *rejected)))[-MAX_REJECTED:]
        open_labels = {source.session for proposal in waiting for source in proposal.sources}
        sessions = {label: text for label, text in store.sessions.items() if label in open_labels}
        _write(book, _Store(waiting, texts, sessions))


def _log_text(rows: Iterable[StoredMessage], label: str) -> str:
    """Return a session's entry for the log: its dates and first request."""
    task = ""
    times = list[int]()
    for row in rows:
        task = task or truncate_line(user_text(row), TASK_CHARS)
        times += [row.message.at_ms] if row.message.at_ms else []
    dates = " to ".join(dict.fromkeys(filter(None, (_date(min(times, default=0)), _date(max(times, default=0))))))
    return f"Session {label!r}{f' ({dates})' if dates else ''}: {task or '(no request)'}"


def _log_sessions(book: Notebook, texts: Mapping[str, str]) -> None:
    """Append the entries of sessions, by label, that the log lacks."""
    heads = {label: (f"Session {label!r} (", f"Session {label!r}:") for label in texts}
    logged = {label for entry in book.entries() for label, head in heads.items() if entry.text.startswith(head)}
    for label, text in texts.items():
        if label not in logged:
            book.append(text, force=True)  # secrets are redacted, and text that only resembles one is no reason to fail


def _date(at_ms: int) -> str:
    if not at_ms:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # imported files may contain any number
        return ""


def _count(facts: int) -> str:
    return f"{facts} fact{'' if facts == 1 else 's'}"


def _read(book: Notebook) -> _Store:
    """Return the stored proposals. Raises UnreadableFile."""
    text = files.read(book.root, STORE).text
    if not text:
        return _Store()
    try:
        return msgspec.json.decode(text, type=decodable(_Store))
    except ValueError as error:
        raise UnreadableFile(f"{STORE} is damaged: {error} (remove it; proposals are made again)") from error


def _write(book: Notebook, store: _Store) -> None:
    data = msgspec.json.format(msgspec.json.encode(store), indent=1).decode()
    files.change(book.root, STORE, lambda _: (data, None))
