"""Documents that Nexus keeps in a ledger: their kinds, and changes in which no other writer's change is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

from nexus.errors import HeadMoved
from nexus.ledger.sessions import Document
from nexus.ledger.store import DocumentStore, SessionStore

AGENT = "nexus:agent"
CONFIGURATION = "nexus:configuration"
PROFILE = "profile"
PROXY_CALL = "proxy_call"
ADAPTER = "adapter:"
"""Kinds of documents: a server's agents by id, the services' configuration, the profiles of principals by name, the reports
of a proxy's calls by id, and, with a framework's name behind `ADAPTER`, what the framework keeps. The `principal` in the
body of the latter is whose data it is."""

HIDDEN = {AGENT: "nexus:agent:", CONFIGURATION: "configuration:", PROFILE: "identity:"}
"""Beginnings of the labels of the sessions in which earlier versions kept documents, by kind; the name follows."""

MOVED = "moved to a document"
"""Reason of the update with which such a session gave up its label."""

PAGE = 500
"""Documents that are read at once."""

MAX_TRIES = 1_000
"""Tries of a change that other writers overtake. Each overtaking is a change that got through."""

Change: TypeAlias = Callable[[dict[str, Any] | None], dict[str, Any]]
"""Returns the next body of a document, given the present one; None if there is no document."""


def change_document(store: DocumentStore, kind: str, name: str, change: Change) -> tuple[dict[str, Any], bool]:
    """Replace a document by the result of `change`; return its body, and whether it was written.

    `change` may alter the body that it gets. It is called again with the newer version if another writer came first, so it
    must not have other side effects. A body that stays the same is not written. Raises HeadMoved after 1,000 tries,
    BadReference, LedgerError, and the errors of `change`.
    """
    for attempt in range(1, MAX_TRIES + 1):
        document = store.document(kind, name)
        body = document.body if document is not None else None
        number = document.number if document is not None else 0
        new = change(deepcopy(body))
        if new == body:
            return new, False
        try:
            return store.put_document(kind, name, new, expected_number=number).body, True
        except HeadMoved:
            if attempt == MAX_TRIES:
                raise
    raise AssertionError  # the last try returns or raises


def pages_of(store: DocumentStore, kind: str) -> Iterator[list[Document]]:
    """Yield the documents of a kind by name, some at a time: there may be more than fit in memory."""
    after = ""
    while page := store.documents(kind, after=after, limit=PAGE):
        yield page
        after = page[-1].name


def hidden_threads(store: SessionStore, kind: str, name: str) -> set[int]:
    """Return the threads with a document's versions from before it was moved out of a hidden session."""
    if kind not in HIDDEN:
        return set()
    updates = store.ref_updates(HIDDEN[kind] + name)
    moved = max((update.number for update in updates if update.reason == MOVED), default=0)
    return {update.thread for update in updates[:moved] if update.thread is not None}
