"""Extent of an erasure: the threads, labels, queued events and documents that belong to sessions or to a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from nexus.ledger.documents import ADAPTER, AGENT, CONFIGURATION, PROFILE, PROXY_CALL, hidden_threads, pages_of
from nexus.ledger.sessions import EVENT_STATES, LATE_MARK, LATE_REPLY, Document, QueuedEvent, SessionInfo
from nexus.ledger.store import DocumentStore, HistoryStore, LedgerStore, SessionStore
from nexus.types.decoding import decodable
from nexus.types.ledger_entries import Entry


class Erasure(Struct, frozen=True):
    """All that is erased together."""

    threads: set[int]
    labels: set[str]
    events: Sequence[str] = ()
    """Keys of queued events of other sessions."""
    documents: Sequence[tuple[str, str]] = ()
    """Kinds and names."""


def late_replies(store: SessionStore, label: str) -> list[SessionInfo]:
    """Return the sessions with late replies to turns of a session, newest first."""
    late = [
        update for update in store.owned(label) if LATE_MARK in update.label and update.metadata.origin == LATE_REPLY
    ]
    infos = [info for update in late if (info := store.session_info(update.label)) is not None]
    return sorted(infos, key=lambda info: (-info.last_ms, info.label))


def of_sessions(
    store: LedgerStore,
    labels: set[str],
    *,
    with_forks: bool,
    events: Sequence[str] = (),
    documents: Sequence[tuple[str, str]] = (),
) -> Erasure:
    """Return sessions with those that their calls spawned, their late replies, their agents, and perhaps their forks."""
    labels = set(labels)
    threads = set[int]()
    waiting = sorted(labels)
    while waiting:
        label = waiting.pop()
        threads |= _threads_only_of(store, label)
        found = {info.label for info in (*store.spawned(label), *late_replies(store, label))} - labels
        if with_forks and not waiting and not found:
            before = set(labels)
            _add_forks(store, threads, labels)
            found = labels - before
        labels |= found
        waiting += sorted(found)
    agents = [(AGENT, name) for label in labels for name in store.names_of(label)]
    stored = [agent for agent in agents if store.document(*agent) is not None]
    documents = sorted({*documents, *stored})
    for kind, name in documents:
        threads |= hidden_threads(store, kind, name)
    return Erasure(threads, labels, events, documents)


def reports_of(store: DocumentStore, threads: Collection[int]) -> list[tuple[str, str]]:
    """Return kinds and names of the reports of a proxy's calls that are recorded on threads."""
    pages = pages_of(store, PROXY_CALL)
    return [(report.kind, report.name) for page in pages for report in page if report.body.get("thread") in threads]


def of_principal(store: LedgerStore, principal: str) -> tuple[Erasure, list[str]]:
    """Return the data of one principal alone, and the labels of sessions in which others spoke too."""
    users = {info.label: _principals(store, info) for info in store.sessions(every=True)}
    events = [event.key for event in store.queued_events(None, EVENT_STATES) if _sender(event) == principal]
    documents = [(document.kind, document.name) for document in store.documents() if _owner(document) == principal]
    labels = {label for label, names in users.items() if names == {principal}}
    shared = sorted(label for label, names in users.items() if principal in names and label not in labels)
    chosen = of_sessions(store, labels, with_forks=True, events=events, documents=documents)
    chosen.threads.update(hidden_threads(store, PROFILE, principal))
    return chosen, shared


_PERSONAL = "dm"
"""Kind of sessions that belong to the person whom their label names."""


class _EventBody(Struct):
    """The part of a queued event's body that names its sender."""

    options: dict[str, Any] = {}


def _sender(event: QueuedEvent) -> str:
    """Return who sent a queued event."""
    try:
        return msgspec.json.decode(event.body, type=decodable(_EventBody)).options.get("principal") or ""
    except (msgspec.MsgspecError, RecursionError):
        return ""


class _AgentSettings(Struct, frozen=True):
    """The part of an agent's settings that names its principal."""

    principal: str = ""


class _AgentBody(Struct, frozen=True):
    """The part of an agent's document that names its principal."""

    settings: _AgentSettings = _AgentSettings()


def _owner(document: Document) -> str:
    """Return the principal whom a document belongs to; empty for nobody's."""
    if document.kind == CONFIGURATION:
        return ""
    if document.kind == PROXY_CALL:
        return str(document.body.get("user", ""))
    if document.kind.startswith(ADAPTER):
        return str(document.body.get("principal", ""))
    if document.kind != AGENT:
        return document.name
    try:
        return msgspec.convert(document.body, decodable(_AgentBody)).settings.principal
    except msgspec.ValidationError:  # no agent that a server stored
        return ""


def _threads_only_of(store: SessionStore, label: str) -> set[int]:
    """Return every thread that a session or one of its names ever pointed to and no other session uses.

    An alias may be the session's name from before it was renamed, with threads of that time.
    """
    threads = set[int]().union(*(_ever(store, name) for name in store.names_of(label)))
    return {thread for thread in threads if not _users(store, thread) - {label}}


def _users(store: SessionStore, thread: int) -> set[str]:
    """Return the labels that point to a thread now."""
    return set(store.labels_of(thread, every=True))


def _ever(store: SessionStore, label: str) -> set[int]:
    """Return every thread that a label pointed to."""
    return {update.thread for update in store.ref_updates(label) if update.thread is not None}


def _add_forks(store: LedgerStore, threads: set[int], labels: set[str]) -> None:
    """Add every thread that continues one of these, and every session that points to one of them now."""
    waiting = sorted(threads)
    while waiting:
        thread = waiting.pop()
        found = set(store.forks(thread))
        for label in _users(store, thread) - labels:
            labels.add(label)
            found |= {other for other in _ever(store, label) if _users(store, other) <= labels}
        found -= threads
        threads |= found
        waiting += sorted(found)


def principals_in(entries: Iterable[Entry]) -> set[str]:
    """Return the principals of the calls that entries belong to."""
    return {str(entry.body["principal"]) for entry in entries if entry.body.get("principal")}


def _principals(store: HistoryStore, info: SessionInfo) -> set[str]:
    """Return who spoke in a session; a direct session without a word belongs to the person that it names."""
    names = principals_in(store.entries(info.thread))
    kind, _, name = info.label.partition(":")
    return names or ({name} if kind == _PERSONAL else set[str]())
