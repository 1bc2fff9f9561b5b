"""Erasing sessions, persons and tenants, and what belongs to a session without being part of it."""

from __future__ import annotations

from nexus.errors import BadReference
from nexus.ledger import erasure
from nexus.ledger.erasure import Erasure
from nexus.ledger.session_directory import label_of
from nexus.ledger.sessions import EVENT_STATES, ErasedPrincipal, EraseResult, SessionInfo
from nexus.ledger.store import LedgerStore, unknown_session
from nexus.ledger.unrecorded_replies import UnrecordedReplies
from nexus.types.ledger_entries import StoredCalibration


class Upkeep:
    """Erasure of what a store contains, with what waits outside it."""

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self.unrecorded: UnrecordedReplies | None = None
        """Replies that wait to be recorded, which are erased with their sessions."""

    def erase(self, session: str, *, with_forks: bool = False) -> EraseResult:
        """Erase a session: every thread that it ever pointed to, its label, its aliases and its queued events.

        The sessions that its calls spawned and its late replies go too. Raises LedgerError with the sessions that continue
        it, unless `with_forks` erases these too, NoSuchSession for a label without session and events, LedgerError.
        """
        label = self._store.resolve(session)
        if label is None:
            if not self._store.queued_events(session, EVENT_STATES):
                raise unknown_session(self._store, session)
            label = session
        return self._erase(erasure.of_sessions(self._store, {label}, with_forks=with_forks))

    def erase_principal(self, principal: str) -> ErasedPrincipal:
        """Erase all that the ledger has of one principal: sessions, workers, queued events, documents, waiting replies.

        A session that others used too stays and is listed in the result: it is theirs as well. Raises BadReference for an
        empty principal, and LedgerError.
        """
        if not principal:
            raise BadReference("principal is empty (name whose data to erase)")
        with self._store.snapshot():
            chosen, shared = erasure.of_principal(self._store, principal)
        replies = 0
        if self.unrecorded is not None:
            replies = self.unrecorded.erase(principal=principal)
        erased = self._erase(chosen)
        return ErasedPrincipal(
            tuple(sorted(chosen.labels)), tuple(shared), len(chosen.events), len(chosen.documents), replies, erased
        )

    def erase_everything(self) -> EraseResult:
        """Delete all data of the store's tenant for good."""
        if self.unrecorded is not None:
            self.unrecorded.erase(everything=True)
        return self._store.erase(None)

    def dependents(self, session: str) -> list[str]:
        """Return the labels of the sessions that `erase` with `with_forks` deletes as well, sorted."""
        label = label_of(self._store, session)
        return sorted(erasure.of_sessions(self._store, {label}, with_forks=True).labels - {label})

    def late_replies(self, session: str) -> list[SessionInfo]:
        """Return the sessions with replies that came too late for their turn in a session, newest first."""
        return erasure.late_replies(self._store, {label_of(self._store, session)})

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Return provider, calibration key and newest calibration of every calibrated model, by name."""
        return self._store.calibrations()

    def _erase(self, chosen: Erasure) -> EraseResult:
        threads = sorted(chosen.threads)
        labels = sorted(chosen.labels)
        erased = self._store.erase(threads, labels, events=chosen.events, documents=chosen.documents)
        if self.unrecorded is not None:
            self.unrecorded.erase(sessions=chosen.labels)
        return erased
