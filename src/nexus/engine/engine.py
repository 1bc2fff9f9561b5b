# Over 600 lines: one handle with a method for each operation of the library; the work is done in other rooms.
"""The engine that `nexus.open` returns: ledger, caches and clock. It connects the rooms and contains no rules."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from os import PathLike
from pathlib import Path
from threading import Event as ThreadEvent
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from msgspec.structs import replace

from nexus.assembly.assemble import assemble, plan_compaction_for
from nexus.assembly.inputs import as_event
from nexus.assembly.profiles.user.registry import load_profiles
from nexus.assembly.record import (
    unanswered_calls,
    with_sizes,
)
from nexus.assembly.window_cache import WindowCache
from nexus.context import AssembledContext, StoredEvent
from nexus.engine.analysis.calls import RecordedCalls
from nexus.engine.analysis.diff import Difference
from nexus.engine.analysis.explain import Explanation
from nexus.engine.analysis.replay import ReplayOverrides, diff_calls, explain_call, replay_call, what_if
from nexus.engine.compactor import Compactor
from nexus.engine.events import event_of
from nexus.engine.memory import WorkspaceMemory
from nexus.engine.mirror import CallerLists, ListScope
from nexus.engine.mirror.assembly import assemble_list
from nexus.engine.preparation import Preparation, check_trusted
from nexus.engine.recorder import Recorder
from nexus.engine.reported_limits import LearnedLimits
from nexus.engine.turn import Turn, begin_turn, open_turn
from nexus.errors import (
    BadEvent,
    BadReference,
    BadSetting,
    HeadMoved,
    NexusError,
    NotFound,
    tool_not_allowed,
)
from nexus.ledger.address import is_address
from nexus.ledger.history_operations import Ledger
from nexus.ledger.location import open_ledger
from nexus.ledger.overlay import without_event
from nexus.ledger.sessions import SessionInfo
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.ledger.unrecorded_replies import UnrecordedReplies, unrecorded_path
from nexus.models.tracing import span
from nexus.policy import Policy
from nexus.providers.replies import read_reply
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.counter import TokenCounter
from nexus.tokens.model import Model
from nexus.tokens.model_table import DEFAULT_MODEL
from nexus.tokens.starting_counter import SmallCounter, StartingCounter, starting_counter
from nexus.types.compaction_plan import COMPACT_TO, CompactionPlan, Trigger
from nexus.types.config import Config
from nexus.types.ledger_entries import Committed, Entry
from nexus.types.message import Image, Message, Text
from nexus.types.profile import Profile
from nexus.types.request import Event, Request, checked_settings
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import CallArguments, Settings, SettingsChanges
from nexus.types.validation import check_options
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.files.containment import local_path
from nexus.workspace.files.reader import cache_folder, home_folder
from nexus.workspace.policy_file import load_policies
from nexus.workspace.source_context import workspace_context
from nexus.workspace.user_profiles import UserProfiles

if TYPE_CHECKING:  # these take a while to import, and most programs use none
    from nexus.summarization import CompactionOutcome, FallbackSummarizer, Summarizer

NEXT_MESSAGE = "(your next message)"
"""Placeholder for a message that is not written yet."""


class Engine:
    """Assembles and records contexts for one workspace and ledger. Use `nexus.open`; close it, or use it in `with`.

    Attributes:
        ledger: All operations on sessions: fork, rewind, undo, pin, rename, search and others.
        settings: The settings of calls, each of which may change some.
        limits: What providers reported about their models' limits.
        preparation: What a request goes through before its context is assembled: plugins, policies, environment.
        calls: The recorded calls, to replay and explain them.
        recorder: Stores replies, also those that could not be stored at first.
        memory: The facts of the workspace.
        compactor: Writes summaries.
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
        settings = Settings() if settings is None else settings
        checked_settings(settings.with_changes(changes))  # raises for wrong types; each call may still change some
        own_home = None if home is None else local_path(home, "home")
        user_folder = own_home or home_folder()
        self.workspace = workspace
        self.ledger = Ledger(ledger)
        self.store = ledger
        self.workspace_context = workspace_context(workspace, own_home, config)
        own_folder = self.workspace_context.home.root if self.workspace_context.home else None
        self.credentials = Credentials(own_folder or user_folder)
        is_file = isinstance(ledger, SqliteLedger)
        waiting = unrecorded_path(ledger.location, is_file=is_file, tenant=ledger.tenant, home=self.credentials.home)
        self.unrecorded = self.ledger.upkeep.unrecorded = UnrecordedReplies(waiting, ledger.tenant)
        self.user_profiles = UserProfiles(ledger, self.credentials.home if local_user else None)
        policy_source = policy if policy is None or isinstance(policy, Policy) else local_path(policy, "policy")
        self.policies = load_policies(policy_source, own_folder, workspace)
        configured = Settings(model=DEFAULT_MODEL).with_changes(self.workspace_context.config.engine_settings())
        explicit_changes = {name: value for name, value in changes.items() if value not in (None, "")}
        settings = configured.with_changes(settings.changes_from(Settings()))
        self.settings = settings.with_changes(cast("SettingsChanges", explicit_changes))
        self.model = self.settings.model
        self.models = dict(models or {})
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.counter = counter or starting_counter(cache_folder(user_folder))
        self.profiles = load_profiles(profiles or {}, user_folder, workspace, lambda: self.preparation.hooks)
        self.limits = LearnedLimits()
        self.preparation = Preparation(
            workspace=workspace,
            workspace_context=self.workspace_context,
            store=ledger,
            settings=self.settings,
            models=self.models,
            counter=self.counter,
            clock_ms=self.clock_ms,
            limits=self.limits,
            credentials=self.credentials,
            policies=self.policies,
            profiles=self.profiles,
            user_profiles=self.user_profiles,
            windows=WindowCache(ledger, self.counter),
            plugins=tuple(plugins),
        )
        self._mirror = CallerLists(self.ledger, self.counter)
        self.recorder = Recorder(self.ledger, self.preparation, self._mirror, self.unrecorded)
        self.calls = RecordedCalls(self.ledger, self.preparation)
        self.memory = WorkspaceMemory(workspace, self.ledger, self.preparation)
        self.compactor = Compactor(self.ledger, self.counter, summarizer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.store.close()

    def warm(self) -> None:
        """Load tokenizer, tables, patterns, files and plugins before the first `assemble` needs them. Writes nothing.

        It takes about half a second, once per process and counter. Plugins' hooks of the moment are not called.
        """
        if isinstance(self.counter, StartingCounter | SmallCounter):
            self.counter.build()
        self.counter.count(NEXT_MESSAGE)
        tool = {"name": "warm", "description": NEXT_MESSAGE, "input_schema": {"type": "object"}}
        request = Request(Event((Text(NEXT_MESSAGE),)), "main", self.settings, (tool,), chooses_session=True)
        with suppress(NexusError):  # a policy or a budget that admits no such call is reported by the calls themselves
            preparation = self.preparation
            authorized = preparation.authorize(preparation.prepare(request, moment=False))
            resolved = preparation.profile(authorized.request)
            ctx = assemble(authorized.request, resolved.profile, preparation.inputs(authorized, resolved))
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
        check_trusted(self.ledger.store)
        with span("nexus.assemble", {}) as traced:
            preparation = self.preparation
            prepared = preparation.prepare(request) if preparation.hooks.plugins else None  # hooks may take long
            with self.ledger.store.snapshot():
                if prepared is None:
                    prepared = preparation.prepare(request)
                authorized = preparation.authorize(prepared)
                resolved = preparation.profile(authorized.request)
                inputs = preparation.inputs(authorized, resolved)
            ctx = assemble(authorized.request, resolved.profile, inputs)
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
        check_trusted(self.ledger.store)
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
        ctx = assemble_list(self._mirror, self.preparation, placed, reserve, request)
        side_scope = self._mirror.side_scope(placed, ctx)
        if side_scope is None:
            return ctx
        return assemble_list(self._mirror, self.preparation, place(messages, side_scope), reserve, request)

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
        check_trusted(self.ledger.store)
        preparation = self.preparation
        stored = event_of(event, request.event, self.clock_ms())
        prepared = preparation.prepare(replace(request, event=stored), moment=False)
        with self.ledger.store.snapshot():
            authorized = preparation.authorize(prepared)
            session = authorized.request.session
            thread = self.ledger.thread(session)
            newest = next(iter(self.ledger.store.entries(thread, event.seqs[-1] - 1, event.seqs[-1])), None)
            if newest is None or newest.hash != event.hash:
                raise HeadMoved(session, event.seqs[-1], self.ledger.store.head(thread)[0])
            resolved = preparation.profile(authorized.request)
            overlay = without_event(self.ledger.store, thread, event.seqs)
            inputs = preparation.inputs(authorized, resolved, overlay, event)
        return assemble(authorized.request, resolved.profile, inputs)

    def check_tool(self, ctx: AssembledContext, tool: str) -> None:
        """Check that a call of a tool may be run. Raises NotAllowed unless the context offered the tool."""
        if not ctx.allows(tool):
            reasons = {denied.name: denied.reason for denied in ctx.provenance.denied_tools}
            reason = reasons.get(tool, "not offered with this context")
            raise tool_not_allowed(tool, ctx.toolset_name, ctx.role, reason)

    def record(self, ctx: AssembledContext, reply: object) -> Committed:
        """Record a turn with its cut and manifest, in one transaction. Recording the same pair again adds nothing.

        The reported usage calibrates the token counts of the model.

        Args:
            ctx: The context that was sent.
            reply: The response of OpenAI, Anthropic or Gemini as object or dict, or an AgentResult.

        Raises BadReply, LedgerError, IdempotencyConflict if another reply was recorded for the same context, and LateReply
        if its turn has ended or another one has begun: the reply is stored apart, behind the message that it answers.
        """
        return self.recorder.record(ctx, read_reply(reply), reply)

    def add_system_message(self, text: str, *, session: str = "main") -> Committed:
        """Add a system message to a session between two turns, as the application's own word.

        Raises BadEvent for a blank text, and BadReference while tool calls wait for their results.
        """
        if not text.strip():
            raise BadEvent("system message is blank (give it a text)", code="empty_event")
        thread = self.ledger.store.thread_of(session)
        row = self.ledger.store.thread(thread) if thread is not None else None
        if row is not None and row.open_turn:
            entries = self.ledger.entries(session)
            open_turn = (stored.message for entry in entries if entry.turn == entries[-1].turn for stored in entry.rows)
            if unanswered_calls(open_turn):
                raise BadReference(
                    f"session {session!r} has tool calls without results (record the results first)", code="bad_entry"
                )
        message = Message("system", (Text(sanitize_text(text)),), at_ms=self.clock_ms(), source="application")
        return self.ledger.append(
            session, with_sizes((message,), self.counter), expected_head=row.head_seq if row else None
        )

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
        check_trusted(self.ledger.store)
        self.ledger.thread(session)
        preparation = self.preparation
        prepared = preparation.prepare(self.request(Event(), session, options), moment=False)
        with self.ledger.store.snapshot():
            authorized = preparation.authorize(prepared)
            resolved = preparation.profile(authorized.request)
            inputs = preparation.inputs(authorized, resolved)
        return plan_compaction_for(authorized.request, resolved.profile, inputs, trigger, share)

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
        check_options("compact", options, CallArguments, "session focus plan share trigger progress summarizer cancel")
        check_trusted(self.ledger.store)
        plan = plan or self.plan(session, share=share, trigger=trigger, **options)
        outcome = self.compactor.run(plan, focus=focus, progress=progress, summarizer=summarizer, cancel=cancel)
        if not outcome or plan is None:
            return outcome
        return replace(outcome, memory=self.memory.consolidate(plan.session))

    def history(self, session: str) -> list[Message]:
        """Return every message of the session, oldest first, cut or compacted ones included. Raises NoSuchSession."""
        return [row.message for entry in self.ledger.entries(session) for row in entry.rows]

    def entries(self, session: str) -> list[Entry]:
        """Return every entry of the session, oldest first, checked against the hash chain. Raises NoSuchSession."""
        return self.ledger.entries(session)

    def sessions(
        self, *, include_inactive: bool = False, limit: int | None = None, offset: int = 0
    ) -> list[SessionInfo]:
        """Return the active sessions, newest first; `include_inactive` adds archived and deleted ones.

        A page of them takes far less than all: `limit` sessions, after the first `offset`.
        """
        return self.ledger.store.sessions(every=include_inactive, limit=limit, offset=offset)

    def replay(self, session: str, turn: int, *, call: int | None = None, unverified: bool = False) -> AssembledContext:
        """Return the context of a recorded call, made from the ledger alone. Nothing is written.

        Args:
            session: The session's label.
            turn: Number of the turn.
            call: Number of the call within the turn; by default the last.
            unverified: Warn about missing inputs or a different body hash, instead of raising CannotReplay.

        Raises NoSuchSession, BadReference, CannotReplay.
        """
        return replay_call(self.calls.dependencies, self.calls.find(session, turn, call), unverified=unverified).ctx

    def resolve(self, model: str) -> Model:
        """Return the context window and prices of a model; the engine's own `models` come first."""
        return self.preparation.resolve(model)

    def explain(self, session: str, turn: int | None = None, *, call: int | None = None) -> Explanation:
        """Explain every block, tool and message of a recorded call (by default the turn's last).

        Without a turn it is the session's next call, with a placeholder as its message and the model and profile of its
        last recorded call; `calls.explain_next` takes a whole request. Raises NoSuchSession, BadReference, CannotReplay.
        """
        if turn is None:
            model, profile = self.calls.last_settings(session)
            settings = replace(self.settings, model=model, profile=profile)
            return self.calls.explain_next(Request(Event((Text(NEXT_MESSAGE),)), session, settings))
        dependencies = self.calls.dependencies
        return explain_call(dependencies, replay_call(dependencies, self.calls.find(session, turn, call)))

    def diff(self, session: str, turn: int, later: int | None = None) -> Difference:
        """Diff the last calls of two turns. Without `later`, diff with the previous call.

        Raises NoSuchSession, BadReference, CannotReplay.
        """
        if later is None:
            new = self.calls.find(session, turn)
            old = self.calls.before(new)
        else:
            new = self.calls.find(session, later)
            old = self.calls.find(session, turn)
        dependencies = self.calls.dependencies
        return diff_calls(dependencies, replay_call(dependencies, old), replay_call(dependencies, new))

    def what_if(self, session: str, turn: int, change: ReplayOverrides, *, call: int | None = None) -> AssembledContext:
        """Return the context of a recorded call with something changed. Nothing is written.

        Raises NoSuchSession, BadReference, CannotReplay, and the errors of `assemble`.
        """
        return what_if(self.calls.dependencies, self.calls.find(session, turn, call), change).ctx


def available_tokens(nx: Engine, *, session: str | None = None, **options: Unpack[CallArguments]) -> int:
    """Return the available tokens of a context that `assemble` makes with the same arguments."""
    check_options("available_tokens", options, CallArguments, "session")
    return nx.preparation.available(nx.request(Event(), session, options))


def session_label(nx: Engine, session: str | None = None, **options: Unpack[CallArguments]) -> str:
    """Return the label of the session that a call with these arguments of `assemble` belongs to."""
    check_options("session_label", options, CallArguments, "session")
    return nx.preparation.session_of(nx.request(Event(), session, options))


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
    path = ledger
    if ledger is not None:
        path = str(ledger) if _is_no_file(ledger) else local_path(ledger, "ledger")
    store = open_ledger(root, path, user_folder, clock_ms=options.get("clock_ms"))
    try:
        engine = Engine(root, store, **options)
        engine.recorder.record_waiting()
    except BaseException:
        store.close()
        raise
    return engine


def _is_no_file(ledger: str | PathLike[str]) -> bool:
    """Return True for a ledger in memory and for one on a server."""
    return str(ledger) == ":memory:" or is_address(ledger)


open_engine.__qualname__ = open_engine.__name__ = "open"  # the name in Python's own errors
