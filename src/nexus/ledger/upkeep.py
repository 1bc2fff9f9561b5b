"""Erasing sessions, persons and tenants, and what belongs to a session without being part of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from nexus.errors import BadReference, LedgerError
from nexus.ledger import erasure_extent
from nexus.ledger.erasure_extent import Erasure
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

        The sessions that its calls spawned, its late replies and a proxy's reports of its calls go too. Raises LedgerError with the sessions that continue
        it, unless `with_forks` erases these too, NoSuchSession for a label without session and events, LedgerError.
        """
        label = self._store.resolve(session)
        if label is None:
            if not self._store.queued_events(session, EVENT_STATES):
                raise unknown_session(self._store, session)
            label = session
        return self._erase(self._with_reports(erasure_extent.of_sessions(self._store, {label}, with_forks=with_forks)))

    def erase_unused(
        self, sessions: Collection[str], since_ms: int, *, documents: Sequence[tuple[str, str]] = ()
    ) -> EraseResult:
        """Erase sessions by label, with their forks and with documents, in one transaction. `scrub` does the rest.

        Raises LedgerError if a session that is not among these continues one, belongs to one, or has one's thread
        (`forks_depend`), if one was used after `since_ms` (`session_in_use`), and as `erase`.
        """
        with self._store.snapshot():
            chosen = erasure_extent.of_sessions(self._store, set(sessions), with_forks=True, documents=documents)
        others = chosen.labels.difference(sessions)
        if others:
            raise LedgerError(f"{', '.join(sorted(others))} would go too (nothing was deleted)", code="forks_depend")
        return self._erase(chosen, since_ms, scrub=False)

    def scrub(self) -> None:
        """Remove from the storage what `erase_unused` left in its unused parts, in short steps. Raises LedgerError."""
        self._store.erase([])

    def erase_principal(self, principal: str) -> ErasedPrincipal:
        """Erase all that the ledger has of one principal: sessions, workers, queued events, documents, waiting replies.

        A session that others used too stays and is listed in the result: it is theirs as well. Raises BadReference for an
        empty principal, and LedgerError.
        """
        if not principal:
            raise BadReference("principal is empty (name whose data to erase)")
        with self._store.snapshot():
            chosen, shared = erasure_extent.of_principal(self._store, principal)
        replies = 0
        if self.unrecorded is not None:
            replies = self.unrecorded.erase(principal=principal)
        erased = self._erase(self._with_reports(chosen))
        return ErasedPrincipal(
            tuple(sorted(chosen.labels)), tuple(shared), len(chosen.events), len(chosen.documents), replies, erased
        )

    def erase_everything(self) -> EraseResult:
        """Delete all data of the store's tenant for good."""
        if self.unrecorded is not None:
            self.unrecorded.erase(everything=True)
        return self._store.erase(None)

    def _with_reports(self, chosen: Erasure) -> Erasure:
        reports = erasure_extent.reports_of(self._store, chosen.threads)
        return replace(chosen, documents=sorted({*chosen.documents, *reports}))

    def dependents(self, session: str, *, with_forks: bool = True) -> list[str]:
        """Return the labels of the sessions that `erase` deletes as well, sorted."""
        label = label_of(self._store, session)
        return sorted(erasure_extent.of_sessions(self._store, {label}, with_forks=with_forks).labels - {label})

    def late_replies(self, session: str) -> list[SessionInfo]:
        """Return the sessions with replies that came too late for their turn in a session, newest first."""
        return erasure_extent.late_replies(self._store, label_of(self._store, session))

    def calibrations(self) -> list[tuple[str, str, StoredCalibration]]:
        """Return provider, calibration key and newest calibration of every calibrated model, by name."""
        return self._store.calibrations()

    def _erase(self, chosen: Erasure, unused_since_ms: int | None = None, *, scrub: bool = True) -> EraseResult:
        threads = sorted(chosen.threads)
        labels = sorted(chosen.labels)
        erased = self._store.erase(
            threads,
            labels,
            events=chosen.events,
            documents=chosen.documents,
            unused_since_ms=unused_since_ms,
            scrub=scrub,
        )
        if self.unrecorded is not None:
            self.unrecorded.erase(sessions=chosen.labels)
        return erased
