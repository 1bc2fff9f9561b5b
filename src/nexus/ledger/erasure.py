"""What is erased with a session or a person: threads, labels, queued events and documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from nexus.ledger.sessions import EVENT_STATES, LATE_MARK, LATE_REPLY, QueuedEvent, SessionInfo
from nexus.ledger.store import LedgerStore


class Erasure(Struct, frozen=True):
    """All that is erased together."""

    threads: set[int]
    labels: set[str]
    events: Sequence[str] = ()
    """Keys of queued events of other sessions."""
    documents: Sequence[tuple[str, str]] = ()
    """Kinds and names."""


def child_sessions(store: LedgerStore, labels: Collection[str]) -> list[SessionInfo]:
    """Return the sessions that were spawned by sessions with these labels."""
    spawned = [session for session in store.sessions(every=True) if session.parent_session]
    return [session for session in spawned if store.resolve(session.parent_session) in labels]


def late_replies(store: LedgerStore, labels: Collection[str]) -> list[SessionInfo]:
    """Return the sessions with late replies to turns of sessions with these labels."""
    late: list[SessionInfo] = []
    for info in store.sessions(every=True):
        update = store.session(info.label) if LATE_MARK in info.label else None
        if update is not None and update.facts.origin == LATE_REPLY:
            late += [info] if store.resolve(update.facts.owner_session) in labels else []
    return late


def of_sessions(
    store: LedgerStore,
    labels: set[str],
    *,
    with_forks: bool,
    events: Sequence[str] = (),
    documents: Sequence[tuple[str, str]] = (),
) -> Erasure:
    """Return what goes with sessions: those that their calls spawned, their late replies, and perhaps their forks."""
    labels = set(labels)
    threads = set[int]().union(*(_all_of(store, label) for label in labels))
    size = -1
    while size != len(threads) + len(labels):
        size = len(threads) + len(labels)
        for info in (*child_sessions(store, labels), *late_replies(store, labels)):
            labels.add(info.label)
            threads |= _all_of(store, info.label)
        if with_forks:
            _add_forks(store, threads, labels)
    return Erasure(threads, labels, events, documents)


def of_principal(store: LedgerStore, principal: str) -> tuple[Erasure, list[str]]:
    """Return what is a principal's alone, and the labels of sessions in which others spoke too."""
    users = {info.label: _principals(store, info) for info in store.sessions(every=True)}
    events = [event.key for event in store.queued_events(None, EVENT_STATES) if _sender(event) == principal]
    documents = [(one.kind, one.name) for one in store.documents() if one.name == principal]
    labels = {label for label, names in users.items() if names == {principal}}
    shared = sorted(label for label, names in users.items() if principal in names and label not in labels)
    return of_sessions(store, labels, with_forks=True, events=events, documents=documents), shared


_PERSONAL = ("dm", "identity")
"""Kinds of sessions that belong to the person whom their label names."""


class _EventBody(Struct):
    """The part of a queued event's body that names its sender."""

    options: dict[str, Any] = {}


def _sender(event: QueuedEvent) -> str:
    """Return who sent a queued event."""
    try:
        return msgspec.json.decode(event.body, type=_EventBody).options.get("principal") or ""
    except (msgspec.MsgspecError, RecursionError):
        return ""


def _all_of(store: LedgerStore, label: str) -> set[int]:
    """Return every thread that a session or one of its names ever pointed to and no other session uses."""
    elsewhere = {session.thread for session in store.sessions(every=True) if session.label != label}
    # An alias may be the session's name from before it was renamed, with threads of that time.
    names = [label, *(alias.name for alias in store.aliases() if store.resolve(alias.name) == label)]
    return set[int]().union(*(_ever(store, name) for name in names)) - elsewhere


def _ever(store: LedgerStore, label: str) -> set[int]:
    """Return every thread that a label pointed to."""
    return {update.thread for update in store.ref_updates(label) if update.thread is not None}


def _add_forks(store: LedgerStore, threads: set[int], labels: set[str]) -> None:
    """Add every thread that continues one of these, and every session that points to one of them now."""
    rows = store.threads()
    now = {session.label: session.thread for session in store.sessions(every=True)}
    size = -1
    while size != len(threads) + len(labels):
        size = len(threads) + len(labels)
        threads |= {row.id for row in rows if row.parent in threads and not row.erased}
        for label in {label for label, thread in now.items() if thread in threads} - labels:
            labels.add(label)
            threads |= _ever(store, label) - {thread for other, thread in now.items() if other not in labels}


def _principals(store: LedgerStore, info: SessionInfo) -> set[str]:
    """Return who spoke in a session; a direct session without a word belongs to the person that it names."""
    entries = store.entries(info.thread)
    names = {str(entry.body["principal"]) for entry in entries if entry.body.get("principal")}
    kind, _, name = info.label.partition(":")
    return names or ({name} if kind in _PERSONAL else set[str]())
