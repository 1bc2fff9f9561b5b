# Over 400 lines: one handle with a method for each thing that a program asks of it; the work is done elsewhere.
"""The handle that `nexus.open` returns: ledger, caches, clock. It brings things together and decides nothing itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from nexus.analysis.diff import Difference
from nexus.analysis.explain import Explanation, explain
from nexus.analysis.recorded_inputs import ReplayDeps
from nexus.analysis.replay import ReplayOverrides, diff_calls, explain_call, replay_call, what_if
from nexus.assembly.assemble import assemble, assemble_fitted, plan_compaction_for
from nexus.assembly.continuity import frozen_blocks, history_header
from nexus.assembly.fit.cut import Strategy
from nexus.assembly.fit.view import build_view
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.inputs import AssemblyInputs, plan_budget
from nexus.assembly.manifest_store import manifest_of
from nexus.assembly.record import build_commit, calibration_factor, calibration_key, update_calibration
from nexus.assembly.request_args import as_event, build_request
from nexus.assembly.window_cache import WindowCache
from nexus.context import AssembledContext
from nexus.errors import BadReference, LedgerError, ToolNotAllowed, WorkspaceMissing
from nexus.ledger.operations import Ledger
from nexus.ledger.recorded_calls import RecordedCall, call_before, recorded_call
from nexus.ledger.sessions import SessionInfo
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.store import LedgerStore
from nexus.policy import Policy
from nexus.policy.authorization import AuthorizedRequest, authorize
from nexus.profiles.user.registry import load_profiles
from nexus.providers.replies import read_reply
from nexus.render.renderers import RENDERERS
from nexus.tokens.counter import RememberingCounter, TokenCounter, get_counter
from nexus.tokens.image_price import image_price
from nexus.tokens.model import Model, resolve
from nexus.tokens.model_names import base_model_name
from nexus.types.block import ContextWarning
from nexus.types.compaction_plan import COMPACT_TO, CompactionPlan, Trigger
from nexus.types.config import Config
from nexus.types.environment import Environment
from nexus.types.ledger_entries import Committed, Entry, StoredCalibration
from nexus.types.message import Image, Message, Text
from nexus.types.profile import Profile
from nexus.types.request import Event, Request, Routing
from nexus.types.tool_definition import ToolSource
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.probe import EnvironmentSnapshot, Probe
from nexus.workspace.environment.survey import Surveys, survey
from nexus.workspace.files.reader import home_folder
from nexus.workspace.policy_file import load_policies
from nexus.workspace.setup import workspace_context
from nexus.workspace.source_context import Clock, Mode, SourceContext

if TYPE_CHECKING:  # the rules by which summaries are made take a while to import, and most programs make none
    from nexus.compaction import CompactionOutcome, FallbackSummarizer, Summarizer
    from nexus.plugins.hooks import Hooks

DEFAULT_MODEL = "claude-sonnet-4-5"
LEDGER_FILE = Path(".nexus") / "ledger.db"
NEXT_MESSAGE = "(your next message)"
"""What stands for a message that is not written yet."""


class Engine:
    """Assembles and records contexts for one workspace and ledger. Use `nexus.open`; close it, or use it in `with`.

    `ledger` has all operations on sessions (fork, rewind, undo, pin, rename, search, …), `store` what is below them.
    `recoveries` counts, by model, the calls that a provider refused as too large (`nexus.recovery`).
    """

    def __init__(
        self,
        workspace: Path | None,
        ledger: LedgerStore,
        *,
        model: str = "",
        timezone: str | int = "",
        models: Mapping[str, Any] | None = None,
        clock_ms: Callable[[], int] | None = None,
        counter: TokenCounter | None = None,
        pin_first_message: bool = True,
        strategy: Strategy = "oldest_first",
        max_tool_result_tokens: int | None = None,
        calibrate: bool = True,
        summarizer: Summarizer | None = None,
        profiles: Mapping[str, Profile | str | Path] | None = None,
        home: str | Path | None = None,
        config: Config | None = None,
        mode: Mode = "",
        clock: Clock = "message",
        policy: Policy | str | Path | None = None,
        plugins: Sequence[object] = (),
    ) -> None:
        self.workspace, self.store, self.ledger = workspace, ledger, Ledger(ledger)
        self.workspace_context = workspace_context(workspace, home, config, mode, clock)
        self.credentials = Credentials(
            self.workspace_context.home.root if self.workspace_context.home else home_folder()
        )
        self._surveys = Surveys(self._look)
        self.policies = load_policies(
            policy, self.workspace_context.home.root if self.workspace_context.home else None, workspace
        )
        configured = self.workspace_context.config
        self.model = model or configured.model or DEFAULT_MODEL
        self.timezone = configured.timezone if timezone == "" else timezone
        self.models = dict(models or {})
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.counter = counter or get_counter()
        self.pin_first_message, self.max_tool_result_tokens = pin_first_message, max_tool_result_tokens
        self.strategy: Strategy = strategy
        self.calibrate, mine = calibrate, Path(home).expanduser() if home is not None else home_folder()
        self.profiles = load_profiles(profiles or {}, mine, workspace, lambda: self.hooks)
        self._summarizer = summarizer
        self._ladder: FallbackSummarizer | None = None
        self.recoveries: Counter[str] = Counter()
        self._limits: dict[str, int] = {}
        self._standing = RememberingCounter(self.counter)
        self._plugins = tuple(plugins)
        self._hooks: Hooks | None = None
        self._windows = WindowCache(ledger, self.counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the ledger."""
        self.store.close()

    def assemble(
        self,
        event: str | Event | Iterable[Message],
        *,
        session: str | None = None,
        model: str = "",
        tools: Sequence[dict[str, Any]] | ToolSource = (),
        images: Sequence[Image] = (),
        budget: int | None = None,
        profile: str = "layered",
        model_config: Mapping[str, Any] | None = None,
        **routing: Any,
    ) -> AssembledContext:
        """The context of the next call for a user's text, an Event, or the results of tool calls (`tool` messages).

        `budget` sets the available tokens directly, otherwise the model's window less the reserves. `routing` takes
        `role` (manager, worker, unified), `task` and `manager` (what a worker is for, the session that spawned it),
        `persona`, `principal` (who speaks), `user_profile`, `toolset`, `permissions`, `skills`, and `blocks` (texts of yours
        by name, shown where the profile places them). Without a session it is the one that the policy has for the
        principal, else `main`. Writes nothing; a session that does not exist is a new, empty one. Raises BudgetTooSmall,
        EmptyEvent, UnknownProfile, BadProfile, BadSessionKey, NotAllowed, BadPolicy, LedgerError.
        """
        given: dict[str, Any] = {"model": model, "tools": tools, "budget": budget, "profile": profile}
        request = self._request(as_event(event, images), session, **given, model_config=model_config, **routing)
        return self.assemble_request(request)

    def _request(self, event: Event, session: str | None, **given: Any) -> Request:
        return self._bounded(build_request(event, session, **given))

    def assemble_request(self, request: Request) -> AssembledContext:
        """The context of the next call for a full `Request`; see `assemble`."""
        asked = self._admitted(request)
        return assemble(asked.request, self._profile(asked.request), self._materials(asked))

    def check_tool(self, ctx: AssembledContext, tool: str) -> None:
        """Raises ToolNotAllowed unless a call of the tool may be run: it was offered with this very context."""
        if not ctx.allows(tool):
            why = next(
                (one.why for one in ctx.provenance.denied_tools if one.name == tool),
                "it was not offered with this context",
            )
            raise ToolNotAllowed(tool, ctx.toolset_name, ctx.role, why)

    def _admitted(self, request: Request, *, moment: bool = True) -> AuthorizedRequest:
        """The request within its bounds, with what hooks add to it, as the policies grant it: hooks' tools as well."""
        request, warned = self._hooked(self._bounded(request), moment=moment)
        asked = authorize(request, self.policies.read(), self.store, self.workspace_context.config.persona)
        return replace(asked, warnings=(*warned, *asked.warnings)) if warned else asked

    def _materials(self, asked: AuthorizedRequest) -> AssemblyInputs:
        """What assembly needs for a request, read in one snapshot of the ledger."""
        request = asked.request
        model, found = self.resolve(request.model or self.model), self.profiles.resolve_with_source(request.profile)
        budget = plan_budget(request, model)
        decided = (self.strategy, self.max_tool_result_tokens, self.workspace_context.config.images.keep_turns)
        message_format = FORMATS[found.profile.message_format]
        view = build_view(
            request.profile, model, budget.available, self.counter, *decided, message_format=message_format
        )
        zone = str(request.event.timezone) or str(self.timezone)
        at_ms = request.event.at_ms or self.clock_ms()
        desk = SourceContext(request, self.workspace_context, at_ms, zone)
        with self.store.snapshot():
            factor = calibration_factor(model, self._calibration(model.provider, model.name, self.counter.name))
            view = replace(view, pin_first_message=self.pin_first_message, images=image_price(model, factor))
            thread = self.store.thread_of(request.routing.session)
            last = manifest_of(self.store.last_assembly(thread, view.name)) if thread is not None else None
            opens = partial(history_header, found.profile, self.store, thread, last, desk=desk)
            kept = self._windows.of(thread, view, opens, starts_turn=not request.event.results)
            frozen = frozen_blocks(found.profile, self.store, last, kept.mark)
        mark = kept.mark.seq if kept.mark else 0
        here = self._surveys.of(request.routing.session, thread, mark, at_ms)
        return AssemblyInputs(
            source_context=SourceContext(
                request, self.workspace_context, at_ms, zone, here, previous_turns=kept.earlier, clock_ms=self.clock_ms
            ),
            sources=self.profiles.sources(found),
            frozen_blocks=frozen,
            model=model,
            budget=budget,
            counter=self._standing,
            factor=factor,
            window=kept.window,
            mark=kept.mark,
            view=view,
            cut_number=kept.cut_number + 1,
            instructions=kept.instructions or (),
            last_manifest=last,
            thread=thread or 0,
            workspace=str(self.workspace or ""),
            renderers=RENDERERS,
            after_mark=kept.after_mark,
            may_compact=kept.window.head > kept.live.undone_at,
            denied_tools=asked.denied_tools,
            warnings=(*asked.warnings, *self._refused(request.model), *self.profiles.warnings_for(found, request)),
        )

    def _refused(self, model: str) -> tuple[ContextWarning, ...]:
        """A word on calls that the provider refused as too large: often, our count or the limit is wrong."""
        times = self.recoveries[model]
        if not times:
            return ()
        calls = "1 call was" if times == 1 else f"{times} calls were"
        return (ContextWarning("nexus:model", f"{calls} refused as too large by {model} since this engine was opened"),)

    def refresh_environment(self) -> Environment:
        """What works here, looked at now: capabilities with their states, and credentials. Without a workspace, none.

        Each session's next call looks again too; otherwise that happens at its start and at a compaction only, so that
        the system slot does not change meanwhile.
        """
        self._surveys.forget()
        return self._survey(self._probe())

    def _probe(self) -> Probe:
        return Probe(self.credentials.has_variable)

    def _look(self, at_ms: int = 0) -> EnvironmentSnapshot:
        return EnvironmentSnapshot(self._probe(), partial(self._survey, at_ms=at_ms))

    def _survey(self, probe: Probe, at_ms: int = 0) -> Environment:
        at_ms = at_ms or self.clock_ms()
        return survey(self.workspace_context, self.credentials, at_ms, probe) if self.workspace else Environment()

    @property
    def hooks(self) -> Hooks:
        """The hooks of plugins, found when they are first needed (`nexus.plugins`)."""
        if self._hooks is None:
            from nexus.plugins.load import load_hooks

            self._hooks = load_hooks(self.workspace_context.config.hooks, self._plugins, self.profiles.names_in_use)
        return self._hooks

    def _hooked(self, request: Request, *, moment: bool) -> tuple[Request, tuple[ContextWarning, ...]]:
        if not self.hooks.plugins:
            return request, ()
        return self.hooks.run(request, request.event.at_ms or self.clock_ms(), moment=moment)

    def _profile(self, request: Request) -> Profile:
        return self.profiles.resolve_with_source(request.profile).profile

    def record(self, ctx: AssembledContext, reply: object) -> Committed:
        """Stores the turn with its cut and manifest, in one transaction.

        `reply` is a provider's response (object or dict, of OpenAI, Anthropic or Gemini) or an AgentResult. The same
        pair again adds nothing. The usage that a reply reports teaches how this model's tokens are counted. Raises
        BadReply, IdempotencyConflict, LedgerError.
        """
        result, now_ms = read_reply(reply), self.clock_ms()
        done = self.ledger.commit(ctx.session_label, build_commit(ctx, result, self.counter, now_ms))
        if done.added and ctx.cut is not None:
            self._windows.keep_after(ctx, ctx.cut, done.thread)
        if done.added and self.calibrate and result.usage.input_tokens:
            earlier = self._calibration(ctx.provider, ctx.model, ctx.provenance.manifest.counter)
            if newer := update_calibration(ctx, result, earlier, now_ms):
                self.store.calibrate(ctx.provider, calibration_key(ctx.model, ctx.provenance.manifest.counter), newer)
        return done

    @property
    def fallback_summarizer(self) -> FallbackSummarizer:
        """Who writes this engine's summaries, and how the model among them has fared."""
        if self._ladder is None:
            from nexus.compaction import FallbackSummarizer

            self._ladder = FallbackSummarizer(self.counter, self._summarizer)
        return self._ladder

    @fallback_summarizer.setter
    def fallback_summarizer(self, ladder: FallbackSummarizer) -> None:
        self._ladder = ladder

    def plan(
        self, session: str = "main", *, share: float = COMPACT_TO, trigger: Trigger = "manual", **request: Any
    ) -> CompactionPlan | None:
        """What `compact` would summarise; None if that is not worth it. Raises NoSuchSession, LedgerError."""
        self.ledger.thread(session)
        asked = self._admitted(build_request(Event(), session, **request), moment=False)
        return plan_compaction_for(asked.request, self._profile(asked.request), self._materials(asked), trigger, share)

    def compact(
        self,
        session: str = "main",
        *,
        focus: str = "",
        plan: CompactionPlan | None = None,
        share: float = COMPACT_TO,
        trigger: Trigger = "manual",
        progress: Callable[[int, int], None] | None = None,
        **request: Any,
    ) -> CompactionOutcome:
        """Summarises older messages, so that the context comes down to a share of what is available.

        Nothing is deleted and `ledger.undo` takes it back. `plan` is one that a context gave (`ctx.plan()`); without it
        one is made for `request` (model, tools, budget, profile, role). `focus` says what to keep above all. The engine's
        summariser is asked first; without one, or where its answers are refused, the summary is made by rule. Raises
        NoSuchSession, CompactionSuperseded, HeadMoved, LedgerError.
        """
        from nexus.compaction import NOTHING, run_compaction

        plan = plan or self.plan(session, share=share, trigger=trigger, **request)
        if plan is None:
            return NOTHING
        return run_compaction(plan, self.ledger, self.fallback_summarizer, self.counter, focus=focus, progress=progress)

    def history(self, session: str) -> list[Message]:
        """Every message of the session, oldest first, whatever was cut or compacted. Raises NoSuchSession."""
        return [row.message for entry in self.entries(session) for row in entry.rows]

    def entries(self, session: str) -> list[Entry]:
        """Every entry of the session, oldest first, checked against the hash chain. Raises NoSuchSession."""
        return self.ledger.entries(session)

    def sessions(self, *, include_inactive: bool = False) -> list[SessionInfo]:
        """The active sessions, newest first; `every` adds archived and deleted ones."""
        return self.store.sessions(every=include_inactive)

    def replay(self, session: str, turn: int, *, call: int | None = None, unverified: bool = False) -> AssembledContext:
        """The context of a recorded call (the turn's last, or number `call`), proven to have the body that was sent.

        It is made from the ledger alone; nothing is written. Raises NoSuchSession, BadReference, and CannotReplay where
        something is missing; with `unproven` that is a warning of the context instead.
        """
        return replay_call(self.replay_deps, recorded_call(self.store, session, turn, call), unverified=unverified).ctx

    def recorded_call(self, session: str, turn: int, call: int | None = None) -> RecordedCall:
        """Return a recorded call of a turn, its last one without `call`, for the functions of `nexus.analysis.replay`.

        Raises NoSuchSession, BadReference.
        """
        return recorded_call(self.store, session, turn, call)

    def previous_call(self, call: RecordedCall) -> RecordedCall:
        """Return the call that was recorded before this one. Raises BadReference if it is the first."""
        before = call_before(self.store, call)
        if before is None:
            raise BadReference(f"{call.label} is the first: there is no call before it")
        return before

    def resolve(self, model: str) -> Model:
        """The facts of a model; the engine's own `models` come first."""
        return resolve(model, self.models)

    def learn_limit(self, model: str, tokens: int) -> None:
        """Remembers what a provider's refusal says of a model: from now on its contexts take at most so many tokens."""
        known = self._limits.get(base_model_name(model), tokens)
        self._limits[base_model_name(model)] = min(known, tokens)

    def forget_limit(self, model: str) -> bool:
        """Forgets what was learned of a model's limit. Whether there was anything to forget."""
        return self._limits.pop(base_model_name(model), None) is not None

    def available(self, *, model: str = "", budget: int | None = None, **_request: Any) -> int:
        """The tokens that a context may take, as `assemble` with the same arguments would have them."""
        request = self._request(Event(), "", model=model, budget=budget)
        return plan_budget(request, self.resolve(request.model)).available

    def _bounded(self, request: Request) -> Request:
        """The request with this engine's model where it names none, within its model's learned limit."""
        request = replace(request, model=request.model or self.model)
        most = self._limits.get(base_model_name(request.model), 0)
        return replace(request, most_tokens=most) if most != request.most_tokens else request

    def explain(self, session: str, turn: int | None = None, *, call: int | None = None) -> Explanation:
        """What became of every block, tool and message in a recorded call (the turn's last, or number `call`).

        Without a turn: in the session's next call, with a message that is not written yet; `explain_request` takes
        another one, and a model or budget. Raises NoSuchSession, BadReference, CannotReplay.
        """
        if turn is None:
            self.ledger.thread(session)
            event = Event((Text(NEXT_MESSAGE),))
            return self.explain_request(Request(event, Routing(session), model=self.model))
        return explain_call(
            self.replay_deps, replay_call(self.replay_deps, recorded_call(self.store, session, turn, call))
        )

    def diff(self, session: str, turn: int, later: int | None = None) -> Difference:
        """How the last call of turn `later` follows that of `turn`; without `later`, how that of `turn` follows the one before.

        Raises NoSuchSession, BadReference, CannotReplay.
        """
        new = self.recorded_call(session, turn if later is None else later)
        old = self.previous_call(new) if later is None else self.recorded_call(session, turn)
        return diff_calls(self.replay_deps, replay_call(self.replay_deps, old), replay_call(self.replay_deps, new))

    def what_if(self, session: str, turn: int, change: ReplayOverrides, *, call: int | None = None) -> AssembledContext:
        """The context that a recorded call's event would get in its place with something changed. Nothing is written.

        Raises what `assemble` does, NoSuchSession, BadReference, CannotReplay.
        """
        return what_if(self.replay_deps, recorded_call(self.store, session, turn, call), change).ctx

    def explain_request(self, request: Request) -> Explanation:
        """What would become of every block, tool and message in the next call for a `Request`; see `assemble`."""
        asked = self._admitted(request)
        request = asked.request
        with self.store.snapshot():
            profile, materials = self._profile(request), self._materials(asked)
            ctx, fitted = assemble_fitted(request, profile, materials)
            thread, head = self.store.thread_of(request.routing.session), fitted.window.head
            marks = self.store.marks(thread) if thread is not None else []
            entries = self.store.entries(thread, 0, head) if thread is not None else iter(())
        return explain(ctx, fitted, entries, marks, self._standing, "the next call")

    @property
    def replay_deps(self) -> ReplayDeps:
        """What past calls are made again with (`nexus.analysis.replay`)."""
        named = (self.strategy, self.max_tool_result_tokens, self._look, partial(self._admitted, moment=False))
        known = self.profiles.resolve
        return ReplayDeps(
            self.store, self.counter, self._standing, RENDERERS, self.workspace_context, self.models, *named, known
        )

    def _calibration(self, provider: str, model: str, counter: str) -> StoredCalibration | None:
        return self.store.calibration(provider, calibration_key(model, counter)) if self.calibrate else None


def open_engine(
    workspace: str | Path | None = None, *, ledger: str | Path | LedgerStore | None = None, **options: Any
) -> Engine:
    """An engine for a workspace folder; its ledger is `WORKSPACE/.nexus/ledger.db` unless another one is given.

    Without a workspace and ledger nothing is kept. `options`: model, timezone (IANA name), models (own windows and
    prices by name), clock_ms, counter, pin_first_message (True: what a user asked first stays), strategy (`oldest_first`, or
    `middle_out`: the beginning stays in front of what is left out), max_tool_result_tokens (base tokens that one result of a tool
    is shown in at most; None is an eighth to a quarter of the available tokens, 0 no limit). calibrate (learn from
    reported usage how tokens are counted; on unless False), summarizer (asked for summaries; without one they are made by
    rule), profiles (your own by name, or their files), home (the user's own folder [`NEXUS_HOME`, else `~/.nexus`]), config (a
    `nexus.types.config.Config`; without it the configuration files and variables are read), mode (`repl` or `server`: what the
    source `surroundings` tells), clock (`message`; `system` for document 004's time in the system slot of the profile
    `repl`, which every call then breaks the prefix with), policy (a `nexus.policy.Policy` or its file, in the place of `policy.toml` in the user's
    folder and in the workspace's `.nexus`), plugins (modules or objects with hooks, beside those that are installed).
    Raises WorkspaceMissing, BadConfig, LedgerError.
    """
    root = Path(workspace).expanduser().resolve() if workspace is not None else None
    if root is not None and not root.is_dir():
        raise WorkspaceMissing(f"there is no folder {root}; `nexus init {root}` makes a workspace")
    if ledger is None:
        ledger = root / LEDGER_FILE if root else ":memory:"
    if not isinstance(ledger, (str, Path)):
        return Engine(root, ledger, **options)
    store = SqliteLedger(_ready(ledger), clock_ms=options.get("clock_ms"))
    try:
        return Engine(root, store, **options)
    except BaseException:
        store.close()
        raise


def _ready(ledger: str | Path) -> str:
    """The ledger's absolute path, its folder made."""
    if str(ledger) == ":memory:":
        return ":memory:"
    place = Path(ledger).expanduser().absolute()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"no ledger can be made at {place}: {error.strerror or error}") from error
    return str(place)
