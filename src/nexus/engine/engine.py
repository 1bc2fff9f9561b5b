# Over 600 lines: one handle with a method for each operation of the library; the work is done in other rooms.
"""The engine that `nexus.open` returns: ledger, caches and clock. It connects the rooms and contains no rules."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from os import PathLike
from pathlib import Path
from threading import Event as ThreadEvent
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.assemble import assemble, assemble_fitted, plan_compaction_for
from nexus.assembly.continuity import frozen_blocks, history_header, last_blocks
from nexus.assembly.fit.lookup import lookup_with
from nexus.assembly.fit.view import build_view
from nexus.assembly.formats.registry import add_formats, find_format
from nexus.assembly.inputs import AssemblyInputs, as_event, plan_budget
from nexus.assembly.manifest_store import manifest_of
from nexus.assembly.profiles.user.registry import load_profiles
from nexus.assembly.record import (
    build_commit,
    calibration_factor,
    calibration_key,
    new_session_metadata,
    provisional_factor,
    unanswered_calls,
    update_calibration,
    with_sizes,
)
from nexus.assembly.window_cache import WindowCache
from nexus.context import AssembledContext, StoredEvent
from nexus.engine.analysis.diff import Difference
from nexus.engine.analysis.explain import Explanation, explain
from nexus.engine.analysis.recorded_inputs import ReplayDeps
from nexus.engine.analysis.replay import ReplayOverrides, diff_calls, explain_call, replay_call, what_if
from nexus.engine.events import event_of
from nexus.engine.late_replies import commit_patiently, late_base, record_unrecorded, try_store_late
from nexus.engine.mirror import ListScope, Mirror, PlacedList
from nexus.engine.mirror.unchanged import is_unchanged
from nexus.engine.turn import Turn, begin_turn, open_turn
from nexus.errors import (
    BadConfig,
    BadEvent,
    BadReference,
    BadSetting,
    HeadMoved,
    IdempotencyConflict,
    LateReply,
    LedgerError,
    NexusError,
    NotFound,
    TurnSuperseded,
    UnreadableFile,
    tool_not_allowed,
)
from nexus.ledger.address import is_address
from nexus.ledger.location import open_ledger
from nexus.ledger.operations import Ledger
from nexus.ledger.overlay import without_event
from nexus.ledger.recorded_calls import RecordedCall, call_before, last_call, last_model, recorded_call
from nexus.ledger.sessions import SessionInfo
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.ledger.unrecorded import UnrecordedReplies, UnrecordedReply, is_of_storage, unrecorded_path
from nexus.policy import Policy
from nexus.policy.authorization import AuthorizedRequest, authorize, session_person
from nexus.providers.replies import read_reply
from nexus.providers.server_edits import has_compaction
from nexus.render.context_json import RENDERERS
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.counter import RememberingCounter, TokenCounter
from nexus.tokens.image_limits import image_limits
from nexus.tokens.image_price import image_price
from nexus.tokens.model import Model, newest_like, resolve, retirement_date
from nexus.tokens.model_names import base_model_name
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.tokens.starting_counter import StartingCounter, starting_counter
from nexus.tracing import span
from nexus.types.block import ContextWarning
from nexus.types.compaction_plan import COMPACT_TO, CompactionPlan, Trigger
from nexus.types.config import Config
from nexus.types.environment import Environment
from nexus.types.ledger_entries import Commit, Committed, Entry, StoredCalibration
from nexus.types.message import Image, Message, Text
from nexus.types.profile import Profile
from nexus.types.request import AgentResult, Event, Request, checked_request, checked_settings
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import CallArguments, Settings, SettingsChanges
from nexus.types.validation import check_options
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.machine import EnvironmentSnapshot, Probe
from nexus.workspace.environment.survey import Surveys, survey
from nexus.workspace.files.containment import local_path
from nexus.workspace.files.reader import cache_folder, home_folder
from nexus.workspace.policy_file import load_policies
from nexus.workspace.source_context import SourceContext, workspace_context
from nexus.workspace.user_profiles import UserProfiles

if TYPE_CHECKING:  # these take a while to import, and most programs use none
    from nexus.compaction import CompactionOutcome, FallbackSummarizer, Summarizer
    from nexus.plugins.hooks import Hooks
    from nexus.workspace.memory.notebook import Notebook

DEFAULT_PROFILE = "layered"
MIRROR_PROFILE = "bare"
NEXT_MESSAGE = "(your next message)"
"""Placeholder for a message that is not written yet."""


_ignores_limits: ContextVar[bool] = ContextVar("_ignores_limits", default=False)


class _PreparedRequest(Struct, frozen=True):
    """A checked request with what plugins added, and warnings, before policies."""

    request: Request
    warnings: tuple[ContextWarning, ...]


class Engine:
    """Assembles and records contexts for one workspace and ledger. Use `nexus.open`; close it, or use it in `with`.

    Attributes:
        ledger: All operations on sessions: fork, rewind, undo, pin, rename, search and others.
        store: The ledger store below them.
        recoveries: Calls that a provider rejected as too large, by model (`nexus.engine.recovery`).
        unrecorded: Replies that the ledger could not store yet (`nexus.ledger.unrecorded`).
        user_profiles: The users' profiles, by principal.
    """

    def __init__(
        self,
        workspace: Path | None,
        ledger: LedgerStore,
        *,
        settings: Settings | None = None,
        models: Mapping[str, Any] | None = None,
        clock_ms: Callable[[], int] | None = None,
        counter: TokenCounter | None = None,
        summarizer: Summarizer | None = None,
        profiles: Mapping[str, Profile | str | Path] | None = None,
        home: str | Path | None = None,
        config: Config | None = None,
        policy: Policy | str | Path | None = None,
        plugins: Sequence[object] = (),
        local_user: bool = False,
        **changes: Unpack[SettingsChanges],
    ) -> None:
        valid = {
            "ledger": hasattr(ledger, "commit"),
            "settings": settings is None or isinstance(settings, Settings),
            "models": models is None or (isinstance(models, Mapping) and all(isinstance(key, str) for key in models)),
            "clock_ms": clock_ms is None or callable(clock_ms),
            "counter": counter is None or (hasattr(counter, "count") and hasattr(counter, "name")),
            "profiles": profiles is None or isinstance(profiles, Mapping),
            "config": config is None or isinstance(config, Config),
            "plugins": isinstance(plugins, Sequence) and not isinstance(plugins, str),
            "local_user": isinstance(local_user, bool),
        }
        if wrong := next((name for name, is_valid in valid.items() if not is_valid), ""):
            raise BadSetting(f"{wrong} of nexus.open has a wrong type or value (see its documentation)")
        settings = (Settings() if settings is None else settings).with_changes(changes)
        checked_settings(settings)  # raises for wrong types; each call may still change those of the model one by one
        home = home if home is None else local_path(home, "home")
        policy = policy if policy is None or isinstance(policy, Policy) else local_path(policy, "policy")
        self.workspace, self.store, self.ledger = workspace, ledger, Ledger(ledger)
        self.workspace_context = workspace_context(workspace, home, config)
        self.credentials = Credentials(
            self.workspace_context.home.root if self.workspace_context.home else home or home_folder()
        )
        is_file = isinstance(ledger, SqliteLedger)
        waiting = unrecorded_path(ledger.location, is_file=is_file, tenant=ledger.tenant, home=self.credentials.home)
        self.unrecorded = self.ledger.upkeep.unrecorded = UnrecordedReplies(waiting, ledger.tenant)
        self.user_profiles = UserProfiles(ledger, self.credentials.home if local_user else None)
        self._surveys = Surveys(self._environment_snapshot)
        self.policies = load_policies(
            policy, self.workspace_context.home.root if self.workspace_context.home else None, workspace
        )
        configured = self.workspace_context.config
        self.settings = replace(
            settings,
            model=settings.model or configured.model or DEFAULT_MODEL,
            timezone=configured.timezone if settings.timezone == "" else settings.timezone,
        )
        self.models = dict(models or {})
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        user_folder = local_path(home, "home") if home is not None else home_folder()
        self.counter = counter or starting_counter(cache_folder(user_folder))
        self.profiles = load_profiles(profiles or {}, user_folder, workspace, lambda: self.hooks)
        self._summarizer = summarizer
        self.recoveries: Counter[str] = Counter()
        self._limits: dict[str, int] = {}
        self._stable_counter = RememberingCounter(self.counter)
        self._plugins = tuple(plugins)
        self._windows = WindowCache(ledger, self.counter)
        self._mirror = Mirror(self.ledger, self.counter)

    @property
    def model(self) -> str:
        """The name of the model of calls that name none."""
        return self.settings.model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger."""
        self.store.close()

    def warm(self) -> None:
        """Load tokenizer, tables, patterns, files and plugins before the first `assemble` needs them. Writes nothing.

        It takes about half a second, once per process and counter. Plugins' hooks of the moment are not called.
        """
        if isinstance(self.counter, StartingCounter):
            self.counter.build()
        self.counter.count(NEXT_MESSAGE)
        tool = {"name": "warm", "description": NEXT_MESSAGE, "input_schema": {"type": "object"}}
        request = Request(Event((Text(NEXT_MESSAGE),)), "main", self.settings, (tool,), chooses_session=True)
        with suppress(NexusError):  # a policy or a budget that admits no such call is reported by the calls themselves
            authorized = self._authorize(self._prepare(request, moment=False))
            inputs = self._assembly_inputs(authorized)
            ctx = assemble(authorized.request, self._profile(authorized.request), inputs)
            for render in (ctx.to_openai, ctx.to_responses, ctx.to_anthropic, ctx.to_gemini):
                render()

    def assemble(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        **options: Unpack[CallArguments],
    ) -> AssembledContext:
        """Assemble the context of the next call. Writes nothing; a session that does not exist is a new, empty one.

        Args:
            event: A user's text, an Event, or the results of tool calls (`tool` messages).
            session: The session's label; without one the policy's session for the principal, else `main`.
            images: Images of the user's message.
            **options: Model, tools, settings and the others of `nexus.Settings`.

        Raises:
            BudgetTooSmall: The parts that are never cut exceed the budget.
            BadSetting: No option has that name.
            BadEvent, BadSetting, NotFound, BadConfig, NotAllowed, LedgerError: As named.
        """
        check_options("assemble", options, CallArguments, "session images")
        return self.assemble_request(self.request(as_event(event, images), session, options))

    def assemble_request(self, request: Request) -> AssembledContext:
        """Assemble the context of the next call for a full `Request`; see `assemble`. `request` makes one."""
        self.check_trusted()
        with span("nexus.assemble", {}) as traced:
            prepared = self._prepare(request)
            with self.store.snapshot():
                authorized = self._authorize(prepared)
                inputs = self._assembly_inputs(authorized)
            ctx = assemble(authorized.request, self._profile(authorized.request), inputs)
            budget = ctx.token_budget
            traced.set(
                {
                    "gen_ai.conversation.id": ctx.session_label,
                    "nexus.context.tokens": budget.used.total,
                    "nexus.context.available": budget.available,
                }
            )
        return ctx

    def request(self, event: Event, session: str | None, arguments: CallArguments) -> Request:
        """Return the request of a call: this engine's settings, changed. Without a session, the policy chooses it.

        The types of fields are checked when it is used. Raises NotAllowed, BadSetting, BadTool.
        """
        request = Request(event, "main" if session is None else session, self.settings, chooses_session=session is None)
        return request.with_arguments(arguments)

    def begin(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        images: Sequence[Image] = (),
        **options: Unpack[CallArguments],
    ) -> Turn:
        """Store a user's message, or results, before any call, and return the turn; arguments as for `assemble`.

        `Event.id` is an idempotency key: the same event again is the same turn. If the context cannot be assembled,
        nothing is stored and the error of `assemble` is raised.
        """
        check_options("begin", options, CallArguments, "session images")
        return begin_turn(self, self.request(as_event(event, images), session, options))

    def mirror(
        self,
        messages: Sequence[Any],
        *,
        scope: str = "",
        conversation: str = "",
        window: bool | None = None,
        provider: ReceivedFormat | None = None,
        reserve: int = 0,
        pins: Sequence[int] = (),
        **options: Unpack[CallArguments],
    ) -> AssembledContext:
        """Assemble the context for a program that has the whole message list of its conversation. Writes nothing.

        The list continues the session that has its longest known beginning, else it is a new one: see
        `AssembledContext.mirrored`. The model sees the list as it is: an edited or dropped message is a fork.
        `record` then stores the messages that the ledger lacks, and the reply, in one transaction. Lists of one scope,
        principal and conversation are compared with each other alone.

        Args:
            messages: The list in a provider's format, or neutral messages. It ends with the user's message or results.
            scope: Name of the client.
            conversation: Id of the conversation, if the caller has one.
            window: True if the list may lack earlier messages. They are put back in front if the list shares three
                messages or more with one session, and one of them, of over 200 characters or with the id of a tool
                call, is in that session alone. By default True for a named scope without a conversation.
            provider: Format of the list; recognized by default (see `nexus.read_messages`).
            reserve: Tokens that the caller adds to the request itself, such as tools that it does not pass.
            pins: Indexes of messages of the list that no cut omits, with the calls and results that belong to them.
            **options: As for `assemble`. System messages at the list's beginning are added to `system`. The profile is
                `bare` by default: the list and the system prompt alone.

        Raises BadEvent for a list that cannot be read or has no message to answer, and as `assemble`.
        """
        check_options("mirror", options, CallArguments, "messages scope conversation window provider reserve pins")
        if type(reserve) is not int or reserve < 0:
            raise BadSetting("reserve is no number of tokens (pass an int, 0 or more)")
        if not all(type(index) is int and 0 <= index < len(messages) for index in pins):
            raise BadSetting(f"pins {[*pins]} are no indexes of the list, which has {len(messages)} messages")
        self.check_trusted()
        request = self.request(Event(), "main", options)
        model = request.settings.model or self.model
        list_scope = ListScope(scope, request.settings.principal, conversation)
        is_anthropic = self.resolve(model).provider_format == "anthropic"
        plain_format: ReceivedFormat = "anthropic" if is_anthropic else "openai"
        now_ms = self.clock_ms()
        place = partial(
            self._mirror.place,
            is_window=window,
            provider=provider,
            model=model,
            now_ms=now_ms,
            default=plain_format,
            pins=pins,
        )
        placed = place(messages, list_scope)
        ctx = self._assemble_list(placed, reserve, request)
        side_scope = self._mirror.side_scope(placed, ctx)
        return ctx if side_scope is None else self._assemble_list(place(messages, side_scope), reserve, request)

    def _assemble_list(self, placed: PlacedList, reserve: int, request: Request) -> AssembledContext:
        """Return the context of a placed list."""
        client = placed.client
        event = event_of(placed.event, Event(), self.clock_ms())
        settings = request.settings
        system = "\n\n".join(text for text in (settings.system, client.system) if text)
        profile = settings.profile or MIRROR_PROFILE
        settings = replace(settings, profile=profile, system=system)
        request = replace(request, event=event, session=placed.session, settings=settings)
        if reserve:
            available = plan_budget(
                self._with_learned_limit(request), self.resolve(request.settings.model or self.model)
            ).available
            request = replace(request, settings=replace(request.settings, budget=max(available - reserve, 1)))
        prepared = self._prepare(request, moment=False)
        with self.store.snapshot():
            authorized = self._authorize(prepared)
            inputs = self._assembly_inputs(authorized, self._mirror.overlay(placed), placed.event)
        mirrored = placed.public(reserve)
        inputs = dataclasses.replace(
            inputs,
            mirrored=mirrored,
            system_parts=client.parts_behind(len(system) - len(client.system)),
            system_names=client.names_behind(len(system) - len(client.system)),
            list_pins=self._mirror.pins(placed),
        )
        ctx = assemble(authorized.request, self._profile(authorized.request), inputs)
        own_system = "" if self.settings.system else system
        check = partial(is_unchanged, ctx, client.form, client.messages, own_system, authorized.request.tools)
        mirrored = dataclasses.replace(mirrored, _is_unchanged=check)
        return dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, mirrored=mirrored))

    def session_label(self, session: str | None = None, **options: Unpack[CallArguments]) -> str:
        """Return the label of the session that a call with these arguments of `assemble` belongs to."""
        check_options("session_label", options, CallArguments, "session")
        return self.session_of(self.request(Event(), session, options))

    def session_of(self, request: Request) -> str:
        """Return the label of the session that a request belongs to."""
        prepared = self._prepare(replace(request, event=Event()), moment=False)
        with self.store.snapshot():
            return self._authorize(prepared).request.session

    def current_turn(self, session: str, **options: Unpack[CallArguments]) -> Turn | None:
        """Return the session's newest turn to continue it; None if it is closed, or if there is no such session.

        Arguments as for `assemble`.
        """
        check_options("current_turn", options, CallArguments, "session")
        return open_turn(self, self.request(Event(), session, options))

    def assemble_stored(self, request: Request, event: StoredEvent) -> AssembledContext:
        """Assemble the context of the next call for an event that the ledger has; see `nexus.engine.turn`.

        Raises HeadMoved if the session was rewound to before the event.
        """
        self.check_trusted()
        stored = event_of(event, request.event, self.clock_ms())
        prepared = self._prepare(replace(request, event=stored), moment=False)
        with self.store.snapshot():
            authorized = self._authorize(prepared)
            thread = self.ledger.thread(authorized.request.session)
            newest = next(iter(self.store.entries(thread, event.seqs[-1] - 1, event.seqs[-1])), None)
            if newest is None or newest.hash != event.hash:
                raise HeadMoved(authorized.request.session, event.seqs[-1], self.store.head(thread)[0])
            store = without_event(self.store, thread, event.seqs)
            inputs = self._assembly_inputs(authorized, store, event)
        return assemble(authorized.request, self._profile(authorized.request), inputs)

    def check_tool(self, ctx: AssembledContext, tool: str) -> None:
        """Check that a call of a tool may be run. Raises NotAllowed unless the context offered the tool."""
        if not ctx.allows(tool):
            reasons = {denied.name: denied.reason for denied in ctx.provenance.denied_tools}
            reason = reasons.get(tool, "not offered with this context")
            raise tool_not_allowed(tool, ctx.toolset_name, ctx.role, reason)

    def check_trusted(self) -> None:
        """Raise LedgerUnusable if the ledger was not made by this user: its texts must go to no model."""
        if isinstance(self.store, SqliteLedger):
            self.store.check_trusted()

    def _prepare(self, request: Request, *, moment: bool = True) -> _PreparedRequest:
        """Check the request, apply the learned limit, then plugins."""
        request, warnings = checked_request(request)
        request = self._with_learned_limit(request)
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
        return _PreparedRequest(request, tuple(warnings))

    def person(self, request: Request) -> str:
        """Return the person whose profile a context shows: the principal, else the person of a `dm:` session.

        Empty if there is no such person; an engine of the local user then shows the local user's profile.
        """
        return request.settings.principal or session_person(self.store, request.session)

    def _authorize(self, prepared: _PreparedRequest) -> AuthorizedRequest:
        """Apply the policies, to the plugins' tools too."""
        persona = self.workspace_context.config.persona
        authorized = authorize(prepared.request, self.policies.read(), self.store, persona)
        warnings = prepared.warnings
        return replace(authorized, warnings=(*warnings, *authorized.warnings)) if warnings else authorized

    def _assembly_inputs(
        self, authorized: AuthorizedRequest, overlay: LedgerStore | None = None, event: StoredEvent | None = None
    ) -> AssemblyInputs:
        """Return the inputs of assembly for a request, read in one snapshot of the ledger, or of an overlay of it.

        `event`: the part of the request's event that the ledger has.
        """
        store = overlay or self.store
        request, shared = authorized.request, self.workspace_context
        settings = request.settings
        resolved = self.profiles.resolve_with_source(settings.profile)
        model = self.resolve(settings.model or self.model).for_counter(self.counter.name)
        profile, budget = resolved.profile, plan_budget(request, model)
        view = build_view(
            settings.profile,
            model,
            budget.available,
            self.counter,
            settings.strategy,
            settings.max_tool_result_tokens,
            shared.config.images.keep_turns,
            message_format=find_format(profile.message_format),
        )
        zone = str(request.event.timezone) or str(settings.timezone)
        sources = SourceContext(request, shared, request.event.at_ms or self.clock_ms(), zone, clock_ms=self.clock_ms)
        with self.store.snapshot():
            calibration = self._calibration(model, self.counter.name) if settings.calibrate else None
            factor, correction = provisional_factor(model, calibration_factor(model, calibration))
            view = replace(
                view,
                pin_first_message=settings.pin_first_message,
                images=image_price(model, factor),
                lookup=lookup_with(request.tools),
                image_limits=image_limits(model, shared.config.images),
            )
            label = store.resolve(request.session) or ""
            thread = store.thread_of(request.session)
            last = manifest_of(store.last_assembly(thread, view.name)) if thread is not None else None
            header = partial(history_header, profile, store, thread, last, sources=sources)
            starts_turn = event.starts_turn if event is not None else not request.event.results
            cached = self._windows.of(thread, view, header, starts_turn=starts_turn, store=overlay)
            frozen = frozen_blocks(profile, store, last, cached.mark)
        mark = cached.mark.seq if cached.mark else 0
        environment = self._surveys.of(request.session, thread, mark, sources.at_ms)
        return AssemblyInputs(
            source_context=dataclasses.replace(
                sources,
                environment=environment,
                previous_turns=cached.previous_turns,
                last_blocks=last.blocks if last is not None else (),
            ),
            sources=self.profiles.sources(resolved),
            frozen_blocks=frozen,
            model=model,
            budget=budget,
            counter=self._stable_counter,
            factor=factor,
            correction=correction,
            window=cached.window,
            mark=cached.mark,
            view=view,
            cut_number=cached.cut_number + 1,
            instructions=cached.instructions or (),
            last_manifest=last,
            thread=thread or 0,
            workspace=str(self.workspace or ""),
            session_label=label,
            renderers=RENDERERS,
            after_mark=cached.after_mark,
            may_compact=cached.window.head > cached.live.undone_at,
            last_blocks=partial(last_blocks, store, thread, last),
            denied_tools=authorized.denied_tools,
            stored_event=event,
            warnings=(
                *authorized.warnings,
                *self._overflow_warnings(request.settings.model),
                *self._retirement_warnings(model),
                *self.profiles.warnings_for(resolved, request),
            ),
        )

    def _retirement_warnings(self, model: Model) -> tuple[ContextWarning, ...]:
        """Return a warning if the model's maker serves it no longer."""
        end = retirement_date(model)
        if not end or datetime.fromtimestamp(self.clock_ms() / 1000, UTC).strftime("%Y-%m-%d") <= end:
            return ()
        successor = newest_like(model)
        remedy = f"use another model, such as {successor}" if successor else "use another model"
        return (ContextWarning("nexus:model", f"model '{model.name}' was retired on {end} ({remedy})"),)

    def _overflow_warnings(self, model: str) -> tuple[ContextWarning, ...]:
        """Return a warning if calls were rejected as too large: repeatedly, our count or the limit is wrong."""
        count = self.recoveries[model]
        if not count:
            return ()
        calls = "1 call" if count == 1 else f"{count} calls"
        return (
            ContextWarning("nexus:model", f"{calls} rejected as too large by {model} since this engine was opened"),
        )

    def refresh_environment(self) -> Environment:
        """Survey the environment now and return it: capabilities with their states, and credentials.

        Each session's next call then surveys again too. Without this method that happens only at a session's start and at
        compactions, so that the system slot does not change in between. Without a workspace the environment is empty.
        """
        self._surveys.forget()
        return self._survey(self._probe())

    def _probe(self) -> Probe:
        return Probe(self.credentials.has_variable)

    def _environment_snapshot(self, at_ms: int = 0) -> EnvironmentSnapshot:
        return EnvironmentSnapshot(self._probe(), partial(self._survey, at_ms=at_ms))

    def _survey(self, probe: Probe, at_ms: int = 0) -> Environment:
        at_ms = at_ms or self.clock_ms()
        return survey(self.workspace_context, self.credentials, at_ms, probe) if self.workspace else Environment()

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks of plugins, discovered at first use (`nexus.plugins`)."""
        from nexus.plugins.load import load_hooks

        return load_hooks(self.workspace_context.config.hooks, self._plugins, self.profiles.names_in_use, add_formats)

    def _profile(self, request: Request) -> Profile:
        return self.profiles.resolve_with_source(request.settings.profile).profile

    def record(self, ctx: AssembledContext, reply: object) -> Committed:
        """Record a turn with its cut and manifest, in one transaction. Recording the same pair again adds nothing.

        The reported usage calibrates the token counts of the model.

        Args:
            ctx: The context that was sent.
            reply: The response of OpenAI, Anthropic or Gemini as object or dict, or an AgentResult.

        Raises BadReply, LedgerError, IdempotencyConflict if another reply was recorded for the same context, and LateReply
        if its turn has ended or another one has begun: the reply is stored apart, behind the message that it answers.
        """
        return self.record_result(ctx, read_reply(reply), reply)

    def record_result(self, ctx: AssembledContext, result: AgentResult, reply: object = None) -> Committed:
        """Record a reply that `read_reply` has read; see `record`."""
        if not isinstance(ctx, AssembledContext):
            raise UnreadableFile(
                f"context is {type(ctx).__name__} (pass the one that `assemble` returned)", code="bad_context"
            )
        now_ms = self.clock_ms()
        commit, mirrored = build_commit(ctx, result, self.counter, now_ms), ctx.mirrored
        reply = result if reply is None else reply
        try:
            if mirrored is not None and isinstance(mirrored.state, PlacedList):
                committed = self._mirror.record(mirrored.state, commit)
            else:
                committed = self._commit_reply(ctx, commit, reply)
        except LedgerError as error:
            if is_of_storage(error):
                error.keep_reply(reply, error.kept_in)
            raise
        if committed.added and mirrored is None and any(map(has_compaction, result.messages)):
            self._pin_compaction(ctx.session_label, committed)
        if committed.added and ctx.cut is not None:
            self._windows.keep_after(ctx, ctx.cut, committed.thread)
        # Usage includes what the caller added to the request, and nothing tells how much of the reserve that was.
        is_counted = not (mirrored is not None and mirrored.reserve)
        calibrates = self.settings.calibrate and ctx.provenance.settings.calibrate
        if committed.added and calibrates and result.usage.input_tokens and is_counted:
            model, counter = ctx.accounting.model_info, ctx.provenance.manifest.counter
            with suppress(LedgerError):  # the reply is stored; the next one calibrates
                if updated := update_calibration(ctx, result, partial(self._calibration, model, counter), now_ms):
                    self.store.calibrate(model.provider, calibration_key(model, counter), updated)
        self.record_waiting()  # an earlier try may have left this reply there
        return committed

    def _pin_compaction(self, session: str, committed: Committed) -> None:
        """Pin the provider's own compaction in a recorded reply, because it replaces everything before it."""
        first = committed.head - committed.added
        rows = (row for entry in self.store.entries(committed.thread, first, committed.head) for row in entry.rows)
        with suppress(LedgerError):  # the reply is stored
            for row in rows:
                if row.message.role == "assistant" and has_compaction(row.message):
                    self.ledger.pin(session, row.ref, "the provider's compaction")

    def _commit_reply(self, ctx: AssembledContext, commit: Commit, reply: object) -> Committed:
        """Store a reply. If the ledger cannot store it now, a file and the error contain it."""
        label, facts = ctx.session_label, None
        try:
            facts = new_session_metadata(ctx, self.store)
            return commit_patiently(self.ledger, label, commit, facts)
        except (TurnSuperseded, HeadMoved, IdempotencyConflict) as error:
            if commit.turn is None:
                raise
            base = late_base(ctx, commit)
            stored_as = try_store_late(self.ledger, label, commit.turn.turn, base, commit)
            raise LateReply(error, commit.turn.turn, reply, stored_as) from error
        except LedgerError as error:
            if not is_of_storage(error) or error.code == "ledger_gone":  # another ledger has its place
                raise
            turn = commit.turn.turn if commit.turn is not None else 0
            principal = ctx.provenance.settings.principal
            waiting = (label, turn, late_base(ctx, commit), commit, facts, principal)
            error.kept_in = self.unrecorded.add(UnrecordedReply(self.store.tenant, *waiting))
            raise

    def record_waiting(self) -> int:
        """Record the replies that the ledger could not store before; return how many. It is done before each turn."""
        return self.unrecorded.record_all(partial(record_unrecorded, self.ledger))

    def add_system_message(self, text: str, *, session: str = "main") -> Committed:
        """Add a system message to a session between two turns, as the application's own word.

        Raises BadEvent for a blank text, and BadReference while tool calls wait for their results.
        """
        if not text.strip():
            raise BadEvent("system message is blank (give it a text)", code="empty_event")
        thread = self.store.thread_of(session)
        row = self.store.thread(thread) if thread is not None else None
        if row is not None and row.open_turn:
            entries = self.entries(session)
            open_turn = (stored.message for entry in entries if entry.turn == entries[-1].turn for stored in entry.rows)
            if unanswered_calls(open_turn):
                raise BadReference(
                    f"session {session!r} has tool calls without results (record the results first)", code="bad_entry"
                )
        message = Message("system", (Text(sanitize_text(text)),), at_ms=self.clock_ms(), source="application")
        return self.ledger.append(
            session, with_sizes((message,), self.counter), expected_head=row.head_seq if row else None
        )

    @cached_property
    def fallback_summarizer(self) -> FallbackSummarizer:
        """The summarizer of this engine, with retries, a deterministic fallback and the state of its model."""
        from nexus.compaction import FallbackSummarizer

        return FallbackSummarizer(self.counter, self._summarizer)

    def plan(
        self,
        session: str = "main",
        *,
        share: float = COMPACT_TO,
        trigger: Trigger = "manual",
        **options: Unpack[CallArguments],
    ) -> CompactionPlan | None:
        """Return what `compact` would summarize; None if that is not worthwhile. Raises NoSuchSession, LedgerError."""
        check_options("plan", options, CallArguments, "session share trigger")
        self.check_trusted()
        self.ledger.thread(session)
        prepared = self._prepare(self.request(Event(), session, options), moment=False)
        with self.store.snapshot():
            authorized = self._authorize(prepared)
            inputs = self._assembly_inputs(authorized)
        profile = self._profile(authorized.request)
        return plan_compaction_for(authorized.request, profile, inputs, trigger, share)

    def compact(
        self,
        session: str = "main",
        *,
        focus: str = "",
        plan: CompactionPlan | None = None,
        share: float = COMPACT_TO,
        trigger: Trigger = "manual",
        progress: Callable[[int, int], None] | None = None,
        summarizer: FallbackSummarizer | None = None,
        cancel: ThreadEvent | None = None,
        **options: Unpack[CallArguments],
    ) -> CompactionOutcome:
        """Summarize older messages. Nothing is deleted, and `ledger.undo` reverts it.

        The engine's summarizer is called first. Without one, or if its summaries are rejected, the summary is extractive.

        Args:
            session: The session's label.
            focus: Topic that the summary should keep above all.
            plan: The plan of a context (`ctx.plan()`); without it one is made with `options`.
            share: Target size of the context, as a share of the available tokens.
            trigger: Stored with the compaction.
            progress: Called with the number of parts summarized and their total.
            summarizer: Used instead of the engine's.
            cancel: Once it is set, the compaction ends with `SummaryCanceled` and stores nothing.
            **options: Arguments of `assemble`, such as model, tools, budget, profile and role.

        Raises NoSuchSession, LedgerError, and CompactionSuperseded or HeadMoved if the session changed meanwhile.
        """
        from nexus.compaction import NOTHING, run_compaction

        check_options("compact", options, CallArguments, "session focus plan share trigger progress summarizer cancel")
        self.check_trusted()
        plan = plan or self.plan(session, share=share, trigger=trigger, **options)
        if plan is None:
            return NOTHING
        chosen = summarizer or self.fallback_summarizer
        with span("nexus.compact", {"gen_ai.conversation.id": plan.session}) as traced:
            outcome = run_compaction(
                plan, self.ledger, chosen, self.counter, focus=focus, progress=progress, cancel=cancel
            )
            traced.set({"nexus.tokens_before": outcome.tokens_before, "nexus.tokens_after": outcome.tokens_after})
        return replace(outcome, memory=self.consolidate(plan.session)) if outcome else outcome

    def notebook(self, timezone: str = "") -> Notebook:
        """Return the workspace's memory, with this engine's clock, zone and caps. Raises NotFound, BadSetting."""
        from nexus.workspace.memory.notebook import Notebook

        if self.workspace is None:
            raise NotFound("memory needs a workspace (pass workspace=… to nexus.open)", code="workspace_missing")
        return Notebook(
            self.workspace,
            timezone=timezone or str(self.settings.timezone),
            clock_ms=self.clock_ms,
            file_chars=self.workspace_context.config.instructions.file_chars,
            profiles=self.user_profiles,
        )

    def consolidate(self, session: str = "main") -> str:
        """Propose or add a session's facts, depending on the setting `consolidate`, and return a line that reports it.

        The line is empty if the setting is off, without a workspace, for a worker's session, and without facts. A failure is
        such a line too: neither a compaction nor the end of a chat fails with it.
        """
        mode = self.workspace_context.config.consolidate
        if mode == "off" or self.workspace is None:
            return ""
        from nexus.workspace.memory.consolidation import consolidate

        try:
            if not self.ledger.resolve(session) or self.ledger.sessions.metadata(session).parent_session:
                return ""
            return str(consolidate(self.notebook(), self.ledger, session, mode))
        except (NexusError, OSError) as error:
            return f"memory not consolidated: {error}"

    def history(self, session: str) -> list[Message]:
        """Return every message of the session, oldest first, cut or compacted ones included. Raises NoSuchSession."""
        return [row.message for entry in self.entries(session) for row in entry.rows]

    def entries(self, session: str) -> list[Entry]:
        """Return every entry of the session, oldest first, checked against the hash chain. Raises NoSuchSession."""
        return self.ledger.entries(session)

    def sessions(self, *, include_inactive: bool = False) -> list[SessionInfo]:
        """Return the active sessions, newest first; `include_inactive` adds archived and deleted ones."""
        return self.store.sessions(every=include_inactive)

    def replay(self, session: str, turn: int, *, call: int | None = None, unverified: bool = False) -> AssembledContext:
        """Return the context of a recorded call, made from the ledger alone. Nothing is written.

        Args:
            session: The session's label.
            turn: Number of the turn.
            call: Number of the call within the turn; by default the last.
            unverified: Warn about missing inputs or a different body hash, instead of raising CannotReplay.

        Raises NoSuchSession, BadReference, CannotReplay.
        """
        return replay_call(self.replay_deps, recorded_call(self.store, session, turn, call), unverified=unverified).ctx

    def recorded_call(self, session: str, turn: int, call: int | None = None) -> RecordedCall:
        """Return a recorded call of a turn, its last one without `call`, for the functions of `nexus.engine.analysis.replay`.

        Raises NoSuchSession, BadReference.
        """
        return recorded_call(self.store, session, turn, call)

    def previous_call(self, call: RecordedCall) -> RecordedCall:
        """Return the call that was recorded before this one. Raises BadReference if it is the first."""
        before = call_before(self.store, call)
        if before is None:
            raise BadReference(f"{call.label} is the first; no previous call")
        return before

    def resolve(self, model: str) -> Model:
        """Return the context window and prices of a model; the engine's own `models` come first."""
        return resolve(model, self.models)

    def last_settings(self, session: str) -> tuple[str, str]:
        """Return the model and the profile of a session's last recorded call.

        Without such a call they are the model of the newest imported reply and `layered`, which also replaces a profile
        that is not known here. Raises NoSuchSession.
        """
        thread = self.ledger.thread(session)
        row = last_call(self.store, thread)
        stored = manifest_of(row) if row is not None else None
        if stored is None:
            return last_model(self.store, thread) or self.model, DEFAULT_PROFILE
        try:
            self.profiles.resolve(stored.profile)
        except (NotFound, BadConfig):
            return stored.model or self.model, DEFAULT_PROFILE
        return stored.model or self.model, stored.profile

    def learn_limit(self, model: str, tokens: int) -> None:
        """Limit all later contexts of a model, as its provider's rejection reported."""
        name = base_model_name(model)
        self._limits[name] = min(self._limits.get(name, tokens), tokens)

    def forget_limit(self, model: str) -> bool:
        """Drop the learned limit of a model; return whether there was one."""
        return self._limits.pop(base_model_name(model), None) is not None

    @contextmanager
    def without_learned_limits(self) -> Generator[None]:
        """Assemble without learned limits in this `with`, on this thread."""
        token = _ignores_limits.set(True)
        try:
            yield
        finally:
            _ignores_limits.reset(token)

    def available(self, *, session: str | None = None, **options: Unpack[CallArguments]) -> int:
        """Return the available tokens of a context that `assemble` makes with the same arguments."""
        check_options("available", options, CallArguments, "session")
        request, _ = checked_request(self.request(Event(), session, options))
        request = self._with_learned_limit(request)
        return plan_budget(request, self.resolve(request.settings.model)).available

    def _with_learned_limit(self, request: Request) -> Request:
        """Return the request with a model, by default this engine's, and with the model's learned limit."""
        request = replace(request, settings=replace(request.settings, model=request.settings.model or self.model))
        limit = 0 if _ignores_limits.get() else self._limits.get(base_model_name(request.settings.model), 0)
        return replace(request, most_tokens=limit) if limit != request.most_tokens else request

    def explain(self, session: str, turn: int | None = None, *, call: int | None = None) -> Explanation:
        """Explain every block, tool and message of a recorded call (by default the turn's last).

        Without a turn it is the session's next call, with a placeholder as its message and the model and profile of its
        last recorded call; `explain_request` takes a whole request. Raises NoSuchSession, BadReference, CannotReplay.
        """
        if turn is None:
            model, profile = self.last_settings(session)
            settings = replace(self.settings, model=model, profile=profile)
            return self.explain_request(Request(Event((Text(NEXT_MESSAGE),)), session, settings))
        return explain_call(
            self.replay_deps, replay_call(self.replay_deps, recorded_call(self.store, session, turn, call))
        )

    def diff(self, session: str, turn: int, later: int | None = None) -> Difference:
        """Diff the last calls of two turns. Without `later`, diff with the previous call.

        Raises NoSuchSession, BadReference, CannotReplay.
        """
        new = self.recorded_call(session, turn if later is None else later)
        old = self.previous_call(new) if later is None else self.recorded_call(session, turn)
        return diff_calls(self.replay_deps, replay_call(self.replay_deps, old), replay_call(self.replay_deps, new))

    def what_if(self, session: str, turn: int, change: ReplayOverrides, *, call: int | None = None) -> AssembledContext:
        """Return the context of a recorded call with something changed. Nothing is written.

        Raises NoSuchSession, BadReference, CannotReplay, and the errors of `assemble`.
        """
        return what_if(self.replay_deps, recorded_call(self.store, session, turn, call), change).ctx

    def explain_request(self, request: Request) -> Explanation:
        """Explain every block, tool and message of the next call for a `Request`; see `assemble`."""
        prepared = self._prepare(request)
        with self.store.snapshot():
            authorized = self._authorize(prepared)
            request = authorized.request
            ctx, fitted = assemble_fitted(request, self._profile(request), self._assembly_inputs(authorized))
            thread, head = self.store.thread_of(request.session), fitted.window.head
            marks = self.store.checkpoints(thread) if thread is not None else []
            entries = self.store.entries(thread, 0, head) if thread is not None else iter(())
        return explain(ctx, fitted, entries, marks, self._stable_counter, "the next call")

    @property
    def replay_deps(self) -> ReplayDeps:
        """The dependencies for replaying past calls (`nexus.engine.analysis.replay`)."""
        return ReplayDeps(
            self.store,
            self.counter,
            self._stable_counter,
            RENDERERS,
            self.workspace_context,
            self.models,
            self.settings,
            self._environment_snapshot,
            lambda request: self._authorize(self._prepare(request, moment=False)),
            self.profiles.resolve,
            lambda: self.hooks,
        )

    def _calibration(self, model: Model, counter: str) -> StoredCalibration | None:
        return self.store.calibration(model.provider, calibration_key(model, counter))


@cache
def _warn_nothing_kept() -> None:
    """Warn once per process, in the line that opens the engine."""
    text = "nothing is kept: nexus.open() has no workspace and no ledger (name one, or pass ledger=':memory:')"
    warnings.warn(text, UserWarning, stacklevel=3)


class EngineOptions(SettingsChanges, total=False):
    """Arguments of `nexus.open` and `nexus.open_async` besides workspace and ledger: `Settings`, and the engine's parts."""

    settings: Settings | None
    """The settings of all calls, with which those passed by name are joined."""
    models: Mapping[str, Any] | None
    """Context windows and prices by model name."""
    clock_ms: Callable[[], int] | None
    """Returns the time in milliseconds since 1970."""
    counter: TokenCounter | None
    """Token counter."""
    summarizer: Summarizer | None
    """Writes summaries; without one they are extractive."""
    profiles: Mapping[str, Profile | str | Path] | None
    """Custom profiles by name, or their files."""
    home: str | Path | None
    """The user's folder (default: `NEXUS_HOME`, else `~/.nexus`)."""
    config: Config | None
    """Without it configuration files and variables are read."""
    policy: Policy | str | Path | None
    """A `Policy` or its file, instead of the `policy.toml` files of user and workspace."""
    plugins: Sequence[object]
    """Modules or objects with hooks, in addition to installed plugins."""
    local_user: bool
    """Whether calls without a principal are the local user's, with the profile in `user.json` of `home` (default: False).
    The command line says so; a program that speaks for others must not."""


def open_engine(
    workspace: str | Path | None = None,
    *,
    ledger: str | Path | LedgerStore | None = None,
    **options: Unpack[EngineOptions],
) -> Engine:
    """Return an engine for a workspace folder. Warn if nothing is kept: without both workspace and ledger.

    Args:
        workspace: The workspace folder.
        ledger: A ledger file, the URL of a PostgreSQL database, or a store; by default `WORKSPACE/.nexus/ledger.db`,
            read-only if the user did not make it.
        **options: The default model, time zone, counter and the others of `EngineOptions`.

    Raises BadSetting, NotFound, BadConfig, LedgerError; LedgerUnusable if a link leads out of
    the workspace.
    """
    check_options("open", options, EngineOptions, "workspace ledger")
    if workspace is None and ledger is None:
        _warn_nothing_kept()
    root = local_path(workspace, "workspace").resolve() if workspace is not None else None
    if root is not None and not root.is_dir():
        raise NotFound(f"folder {root} not found (make a workspace: nexus init {root})", code="workspace_missing")
    if ledger is not None and not isinstance(ledger, (str, PathLike)):
        return Engine(root, ledger, **options)
    home = options.get("home")
    user_folder = local_path(home, "home") if home is not None else home_folder()
    path = None if ledger is None else str(ledger) if _is_no_file(ledger) else local_path(ledger, "ledger")
    store = open_ledger(root, path, user_folder, clock_ms=options.get("clock_ms"))
    try:
        engine = Engine(root, store, **options)
        engine.record_waiting()
    except BaseException:
        store.close()
        raise
    return engine


def _is_no_file(ledger: str | PathLike[str]) -> bool:
    """Return True for a ledger in memory and for one on a server."""
    return str(ledger) == ":memory:" or is_address(ledger)


open_engine.__qualname__ = open_engine.__name__ = "open"  # the name in Python's own errors
