"""From a request to the inputs of its assembly: checks, plugins, policies, and the state of ledger and workspace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.continuity import frozen_blocks, history_header, last_blocks
from nexus.assembly.fit.lookup import lookup_with
from nexus.assembly.fit.view import build_view
from nexus.assembly.formats.registry import add_formats, find_format
from nexus.assembly.inputs import AssemblyInputs, LastCall, StoredSession, plan_budget
from nexus.assembly.manifest_store import manifest_of
from nexus.assembly.profiles.user.registry import Profiles, ResolvedProfile
from nexus.assembly.record import calibration_factor, calibration_key, provisional_factor
from nexus.assembly.window_cache import WindowCache
from nexus.context import StoredEvent
from nexus.engine.reported_limits import LearnedLimits
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore, SessionStore
from nexus.policy import decide
from nexus.policy.authorization import AuthorizedRequest, authorize, owning_names, session_person
from nexus.render.context_json import RENDERERS
from nexus.tokens.counter import RememberingCounter, TokenCounter
from nexus.tokens.image_limits import image_limits
from nexus.tokens.image_price import image_price
from nexus.tokens.model import Model, newest_like, resolve, retirement_date
from nexus.tokens.scale import TokenScale
from nexus.types.block import ContextWarning
from nexus.types.environment import Environment
from nexus.types.ledger_entries import StoredCalibration
from nexus.types.request import Event, Request, checked_request
from nexus.types.settings import Settings
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.machine import EnvironmentSnapshot, Probe
from nexus.workspace.environment.survey import Surveys, survey
from nexus.workspace.policy_file import Policies
from nexus.workspace.source_context import EngineWorkspace, SourceContext
from nexus.workspace.user_profiles import UserProfiles

if TYPE_CHECKING:  # it takes a while to import, and most programs have no plugins
    from nexus.workspace.plugins.hooks import Hooks

DEFAULT_PROFILE = "layered"


def check_trusted(store: LedgerStore) -> None:
    """Raise LedgerUnusable if the ledger was not made by this user: its texts must go to no model."""
    if isinstance(store, SqliteLedger):
        store.check_trusted()


class PreparedRequest(Struct, frozen=True):
    """A checked request with what plugins added, and warnings, before policies."""

    request: Request
    warnings: tuple[ContextWarning, ...]


@dataclass
class Preparation:
    """The parts of an engine that a request meets before its assembly, and the way through them."""

    workspace: Path | None
    workspace_context: EngineWorkspace
    store: LedgerStore
    settings: Settings
    """The engine's, with a model."""
    models: Mapping[str, Any]
    counter: TokenCounter
    clock_ms: Callable[[], int]
    limits: LearnedLimits
    credentials: Credentials
    policies: Policies
    profiles: Profiles
    user_profiles: UserProfiles
    windows: WindowCache
    plugins: tuple[object, ...]

    def __post_init__(self) -> None:
        self.surveys = Surveys(self.environment)

    @cached_property
    def stable_counter(self) -> RememberingCounter:
        """The counter, with a cache of its results."""
        return RememberingCounter(self.counter)

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks of plugins, discovered at first use (`nexus.workspace.plugins`)."""
        from nexus.workspace.plugins.load import load_hooks

        return load_hooks(self.workspace_context.config.hooks, self.plugins, self.profiles.names_in_use, add_formats)

    def environment(self, at_ms: int = 0) -> EnvironmentSnapshot:
        """Return a snapshot of the environment, which surveys it at most once, as at that time or now."""
        return EnvironmentSnapshot(Probe(self.credentials.has_variable), partial(self._survey, at_ms=at_ms))

    def refresh_environment(self) -> Environment:
        """Survey the environment now and return it: capabilities with their states, and credentials.

        Each session's next call then surveys again too. Without this method that happens only at a session's start and at
        compactions, so that the system slot does not change in between. Without a workspace the environment is empty.
        """
        self.surveys.forget()
        return self._survey(Probe(self.credentials.has_variable))

    def _survey(self, probe: Probe, at_ms: int = 0) -> Environment:
        if self.workspace is None:
            return Environment()
        return survey(self.workspace_context, self.credentials, at_ms or self.clock_ms(), probe)

    def resolve(self, model: str) -> Model:
        """Return the context window and prices of a model; the engine's own `models` come first."""
        return resolve(model, self.models)

    def prepare(self, request: Request, *, moment: bool = True) -> PreparedRequest:
        """Check a request, apply the learned limit, then plugins; with `moment` also their hooks of the moment."""
        request, warnings = checked_request(request)
        request = self._limited(request)
        settings = request.settings
        settings = replace(
            settings, profile=settings.profile or DEFAULT_PROFILE, system=settings.system or self.settings.system
        )
        if not settings.user_profile:
            profile, more = self.user_profiles.read(self.person(request))
            settings = replace(settings, user_profile=profile)
            warnings = (*warnings, *more)
        request = replace(request, settings=settings)
        if self.hooks.plugins:
            request, more = self.hooks.run(request, request.event.at_ms or self.clock_ms(), moment=moment)
            warnings = (*warnings, *more)
        return PreparedRequest(request, tuple(warnings))

    def _limited(self, request: Request) -> Request:
        """Return a request with a model, by default the engine's, and with the model's learned limit."""
        model = request.settings.model or self.settings.model
        return self.limits.limited(replace(request, settings=replace(request.settings, model=model)))

    def person(self, request: Request) -> str:
        """Return the person whose profile a context shows: the principal, else the person of a `dm:` session.

        Empty without such a person; an engine of the local user then shows the local user's profile.
        """
        return request.settings.principal or session_person(self.store, request.session)

    def authorize(self, prepared: PreparedRequest) -> AuthorizedRequest:
        """Apply the policies, to the plugins' tools too."""
        persona = self.workspace_context.config.persona
        authorized = authorize(prepared.request, self.policies.read(), self.store, persona)
        warnings = prepared.warnings
        if warnings:
            return replace(authorized, warnings=(*warnings, *authorized.warnings))
        return authorized

    def session_of(self, request: Request) -> str:
        """Return the label of the session that a request belongs to: that of its speaker, whatever it says and offers.

        The request is prepared when it is assembled, not here: plugins add tools, which choose no session. Raises NotAllowed, BadSetting, LedgerError.
        """
        request, _ = checked_request(replace(request, event=Event(), tools=()))
        return decide(self.policies.read(), request, partial(_owning_names_now, self.store)).session

    def available(self, request: Request) -> int:
        """Return the available tokens of the context that is assembled for a request."""
        request, _ = checked_request(request)
        request = self._limited(request)
        return plan_budget(request, self.resolve(request.settings.model)).available

    def profile(self, request: Request) -> ResolvedProfile:
        """Return the profile of a prepared request, with its source. Raises NotFound, BadConfig."""
        return self.profiles.resolve_with_source(request.settings.profile)

    def calibration(self, model: Model, counter: str) -> StoredCalibration | None:
        """Return the stored calibration of a model for this counter; None if there is none."""
        return self.store.calibration(model.provider, calibration_key(model, counter))

    def inputs(
        self,
        authorized: AuthorizedRequest,
        resolved: ResolvedProfile,
        overlay: LedgerStore | None = None,
        event: StoredEvent | None = None,
    ) -> AssemblyInputs:
        """Return the inputs of assembly for a request, read in one snapshot of the ledger, or of an overlay of it.

        `resolved`: the request's profile. `event`: the part of the request's event that the ledger has.
        """
        store = overlay or self.store
        request = authorized.request
        settings = request.settings
        model = self.resolve(settings.model).for_counter(self.counter.name)
        budget = plan_budget(request, model)
        view = build_view(
            settings.profile,
            model,
            budget.available,
            self.counter,
            settings.strategy,
            settings.max_tool_result_tokens,
            self.workspace_context.config.images.keep_turns,
            message_format=find_format(resolved.profile.message_format),
        )
        sources = self._source_context(request)
        with self.store.snapshot():
            calibration = self.calibration(model, self.counter.name) if settings.calibrate else None
            factor, correction = provisional_factor(model, calibration_factor(model, calibration))
            view = replace(
                view,
                pin_first_message=settings.pin_first_message,
                images=image_price(model, factor),
                lookup=lookup_with(request.tools),
                image_limits=image_limits(model, self.workspace_context.config.images),
            )
            label = store.resolve(request.session) or ""
            thread = store.thread_of(request.session)
            last = manifest_of(store.last_assembly(thread, view.name)) if thread is not None else None
            header = partial(history_header, resolved.profile, store, thread, last, sources=sources)
            starts_turn = event.starts_turn if event is not None else not request.event.results
            cached = self.windows.of(thread, view, header, starts_turn=starts_turn, store=overlay)
            frozen = frozen_blocks(resolved.profile, store, last, cached.mark)
        mark = cached.mark.seq if cached.mark else 0
        return AssemblyInputs(
            source_context=dataclasses.replace(
                sources,
                environment=self.surveys.of(request.session, thread, mark, sources.at_ms),
                previous_turns=cached.previous_turns,
                last_blocks=last.blocks if last is not None else (),
            ),
            sources=self.profiles.sources(resolved),
            scale=TokenScale(model, budget, self.stable_counter, factor, correction=correction),
            view=view,
            window=cached.window,
            cut_number=cached.cut_number + 1,
            session=StoredSession(
                thread or 0,
                label,
                cached.instructions or (),
                cached.mark,
                cached.after_mark,
                may_compact=cached.window.head > cached.live.undone_at,
            ),
            last=LastCall(last, frozen, partial(last_blocks, store, thread, last)),
            workspace=str(self.workspace or ""),
            renderers=RENDERERS,
            denied_tools=authorized.denied_tools,
            stored_event=event,
            warnings=(
                *authorized.warnings,
                *self._model_warnings(settings.model, model),
                *self.profiles.warnings_for(resolved, request),
            ),
        )

    def _source_context(self, request: Request) -> SourceContext:
        """Return what sources get for a request."""
        zone = str(request.event.timezone) or str(request.settings.timezone)
        at_ms = request.event.at_ms or self.clock_ms()
        return SourceContext(request, self.workspace_context, at_ms, zone, clock_ms=self.clock_ms)

    def _model_warnings(self, name: str, model: Model) -> tuple[ContextWarning, ...]:
        """Return warnings if a model rejected calls as too large, and if its maker serves it no longer."""
        warnings = self.limits.warnings(name)
        end = retirement_date(model)
        if not end or datetime.fromtimestamp(self.clock_ms() / 1000, UTC).strftime("%Y-%m-%d") <= end:
            return warnings
        successor = newest_like(model)
        remedy = f"use another model, such as {successor}" if successor else "use another model"
        retired = ContextWarning("nexus:model", f"model '{model.name}' was retired on {end} ({remedy})")
        return (*warnings, retired)


def _owning_names_now(store: SessionStore, label: str) -> list[str]:
    """Return the names of a session's owner as they were at one moment; most requests need none."""
    with store.snapshot():
        return owning_names(store, label)
