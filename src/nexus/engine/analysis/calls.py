"""Recorded calls of an engine's ledger, and what replaying them needs."""

from __future__ import annotations

from nexus.assembly.assemble import assemble_fitted
from nexus.assembly.manifest_store import manifest_of
from nexus.engine.analysis.explain import Explanation, explain
from nexus.engine.analysis.recorded_inputs import ReplayDeps
from nexus.engine.preparation import DEFAULT_PROFILE, Preparation
from nexus.errors import BadConfig, BadReference, NotFound
from nexus.ledger.history_operations import Ledger
from nexus.ledger.recorded_calls import (
    RecordedCall,
    call_before,
    last_call,
    last_model,
    recorded_call,
    recorded_call_at,
    recorded_call_on,
)
from nexus.policy.authorization import AuthorizedRequest
from nexus.render.context_json import RENDERERS
from nexus.types.request import Request


class RecordedCalls:
    """The recorded calls of a ledger, for the functions of `nexus.engine.analysis`."""

    def __init__(self, ledger: Ledger, preparation: Preparation) -> None:
        self._ledger = ledger
        self._preparation = preparation

    def find(self, session: str, turn: int, call: int | None = None) -> RecordedCall:
        """Return a recorded call of a turn, its last one without `call`. Raises NoSuchSession, BadReference."""
        return recorded_call(self._ledger.store, session, turn, call)

    def find_on(self, thread: int, session: str, turn: int, call: int | None = None) -> RecordedCall:
        """Return a recorded call of a thread, which `session` may have left since. Raises BadReference."""
        return recorded_call_on(self._ledger.store, thread, session, turn, call)

    def at(self, thread: int, session: str, seq: int) -> RecordedCall:
        """Return the newest call at or before entry `seq` of a thread. Raises BadReference if there is none."""
        return recorded_call_at(self._ledger.store, thread, session, seq)

    def before(self, call: RecordedCall) -> RecordedCall:
        """Return the call that was recorded before this one. Raises BadReference if it is the first."""
        before = call_before(self._ledger.store, call)
        if before is None:
            raise BadReference(f"{call.label} is the first; no previous call")
        return before

    def last_settings(self, session: str) -> tuple[str, str]:
        """Return the model and the profile of a session's last recorded call.

        Without such a call they are the model of the newest imported reply and `layered`, which also replaces a profile
        that is not known here. Raises NoSuchSession.
        """
        default_model = self._preparation.settings.model
        thread = self._ledger.thread(session)
        row = last_call(self._ledger.store, thread)
        stored = manifest_of(row) if row is not None else None
        if stored is None:
            return last_model(self._ledger.store, thread) or default_model, DEFAULT_PROFILE
        try:
            self._preparation.profiles.resolve(stored.profile)
        except (NotFound, BadConfig):
            return stored.model or default_model, DEFAULT_PROFILE
        return stored.model or default_model, stored.profile

    def explain_next(self, request: Request) -> Explanation:
        """Explain every block, tool and message of the next call for a `Request`; see `Engine.assemble`."""
        preparation = self._preparation
        store = self._ledger.store
        prepared = preparation.prepare(request)
        with store.snapshot():
            authorized = preparation.authorize(prepared)
            request = authorized.request
            resolved = preparation.profile(request)
            ctx, fitted = assemble_fitted(request, resolved.profile, preparation.inputs(authorized, resolved))
            thread = store.thread_of(request.session)
            head = fitted.window.head
            checkpoints = store.checkpoints(thread) if thread is not None else []
            entries = store.entries(thread, 0, head) if thread is not None else iter(())
        return explain(ctx, fitted, entries, checkpoints, preparation.stable_counter, "the next call")

    @property
    def dependencies(self) -> ReplayDeps:
        """Everything that replay needs besides a call's record."""
        preparation = self._preparation

        def authorized(request: Request) -> AuthorizedRequest:
            return preparation.authorize(preparation.prepare(request, moment=False))

        return ReplayDeps(
            self._ledger.store,
            preparation.counter,
            preparation.stable_counter,
            RENDERERS,
            preparation.workspace_context,
            preparation.models,
            preparation.settings,
            preparation.environment,
            authorized,
            preparation.profiles.resolve,
            lambda: preparation.hooks,
        )
