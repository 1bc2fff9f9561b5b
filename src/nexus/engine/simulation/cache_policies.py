"""Truncation policies, each as the bodies that it sends for a recorded session: Nexus, and three common ones.

All get the same calls: the messages before each reply of the model, the reply, and the time. Compactions, clears and
cuts of the session are ignored: each policy gets all messages and truncates by itself.

The other policies choose from the messages that Nexus shows without a limit, and the same code renders their bodies with
the same cache breakpoints; only the choice differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from itertools import accumulate
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.record import with_sizes
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext
from nexus.engine import Engine, open_engine
from nexus.errors import BadEvent, BudgetTooSmall
from nexus.ledger.replay import conversation_rows
from nexus.providers.prompt_cache import CutCycle
from nexus.tokens.budget import compute_budget
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model import Model
from nexus.tokens.model_names import same_model
from nexus.types.history import History
from nexus.types.ledger_entries import Commit, Entry, NewEntry
from nexus.types.message import Message, Note, Thinking, with_parts
from nexus.types.request import AgentResult, Event, Request

NO_LIMIT = 1_000_000_000
"""A budget that no history exceeds."""

START_MS = 1_767_225_600_000
"""Time of the first call if it is unknown: 2026-01-01, 00:00 UTC."""

Choice: TypeAlias = Callable[[Sequence[int], int], list[int]]
"""Takes the tokens of each group, oldest first, and the available tokens; returns the indices of the groups to send."""


class CallPoint(Struct, frozen=True):
    """One call."""

    before: tuple[Message, ...]
    """Messages since the previous call that got no reply of their own."""
    event: Event
    reply: tuple[Message, ...]
    at_ms: int = 0
    """Unix time of the call; 0 if unknown."""


class RecordedSession(Struct, frozen=True):
    """A session as its calls, in order, and its leading system messages."""

    instructions: tuple[Message, ...]
    points: tuple[CallPoint, ...]


def recorded_session(entries: Iterable[Entry]) -> RecordedSession:
    """Return the calls of a session's entries: one for each reply of the model.

    Notes that were sent with a message are removed: each policy's assembly adds its own.
    """
    instructions: list[Message] = []
    points: list[CallPoint] = []
    pending: list[Message] = []
    for entry in entries:
        rows = conversation_rows(entry)
        instructions += (_without(Note, row.message) for row in entry.rows[: len(entry.rows) - len(rows)])
        for message in (_without(Note, row.message) for row in rows):
            if message.role != "assistant":
                pending.append(message)
            elif pending:
                # The event: the last message, or all results of a batch of tools.
                first = len(pending) - 1
                while first and pending[first].role == pending[first - 1].role == "tool":
                    first -= 1
                event = tuple(pending[first:])
                is_batch = event[0].role == "tool"
                if is_batch:
                    point = Event(results=event)
                else:
                    point = Event(content=event[0].parts, received=event[0].received)
                points.append(CallPoint(tuple(pending[:first]), point, (message,), event[-1].at_ms))
                pending = []
            elif points:
                points[-1] = replace(points[-1], reply=(*points[-1].reply, message))
    return RecordedSession(tuple(instructions), tuple(points))


def times_of(points: Sequence[CallPoint], interval_ms: int) -> list[int]:
    """Return the time of each call: the recorded one, but never before the previous call.

    A call without a recorded time follows `interval_ms` after the previous one.
    """
    times: list[int] = []
    for point in points:
        last = times[-1] if times else START_MS - interval_ms
        if not point.at_ms:
            times.append(last + interval_ms)
        else:
            times.append(max(point.at_ms, last) if times else point.at_ms)
    return times


def _without(kind: type[Note | Thinking], message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, kind))
    if len(parts) == len(message.parts):
        return message
    return with_parts(message, parts)


def sliding_window(groups: Sequence[int], available: int) -> list[int]:
    """Drop the oldest groups until the rest fits, for each call again."""
    first = len(groups)
    used = 0
    while first and used + groups[first - 1] <= available:
        first -= 1
        used += groups[first]
    return [*range(first, len(groups))]


def refill(groups: Sequence[int], available: int) -> list[int]:
    """Fill the budget for each call again: the newest groups first, then every older one that still fits."""
    chosen: list[int] = []
    for index in range(len(groups) - 1, -1, -1):
        if groups[index] <= available:
            available -= groups[index]
            chosen.append(index)
    return chosen[::-1]


def keep_all(groups: Sequence[int], available: int) -> list[int]:
    """Send the whole history."""
    del available
    return [*range(len(groups))]


CHOICES: dict[str, Choice] = {"window": sliding_window, "refill": refill, "nothing": keep_all}
NAMES = ("nexus", *CHOICES)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The untruncated history of one call as groups."""

    members: list[list[Message]]
    sizes: list[int]
    """Tokens of each group."""
    fixed: int
    """Tokens of system prompt and tools."""
    event: int
    """Tokens of the event."""


class Replay:
    """A session replayed in two ledgers in memory, call by call, with the bodies of each policy. Close it after use.

    Arguments are those of `nexus.engine.simulation.cache.simulate_session`.
    """

    def __init__(
        self,
        nx: Engine,
        session: RecordedSession,
        model: Model,
        *,
        budget: int | None,
        tools: Sequence[dict[str, Any]] = (),
        profile: str = "layered",
    ) -> None:
        self.model = model
        self.available = compute_budget(model, available_tokens=budget).available
        self._tools = tuple(tools)
        self._profile = profile
        self._sizes: dict[Message, int] = {}
        self._groups = _Groups([], [], 0, 0)
        # One engine never truncates: its contexts are the material of the other policies.
        self._unlimited = _empty_copy(nx, model)
        self._limited = _empty_copy(nx, model)
        for engine in (self._unlimited, self._limited):
            _append(engine, session.instructions)

    def close(self) -> None:
        """Close the ledgers in memory."""
        self._unlimited.close()
        self._limited.close()

    def bodies(self, point: CallPoint, at_ms: int) -> dict[str, dict[str, Any] | None] | None:
        """Return the body that each policy sends, None for a policy whose required messages exceed the budget.

        Returns None instead of bodies for an event that is empty: no policy makes a call.
        """
        unlimited = self._record(self._unlimited, point, at_ms, NO_LIMIT)
        limited = self._record(self._limited, point, at_ms, self.available)
        if unlimited is None:
            return None
        # A group is a message, or an assistant's calls with their results.
        used = unlimited.token_budget.used
        history = [*unlimited.history]
        starts = [at for at, message in enumerate(history) if message.role != "tool" or at == 0]
        ends = [*starts[1:], *([len(history)] if history else [])]
        members = [history[first:end] for first, end in zip(starts, ends, strict=True)]
        sizes = [self._model_tokens(group) for group in members]
        groups = self._groups = _Groups(members, sizes, used.system_prompt + used.tools, used.event)
        full_body = unlimited.to_provider(self.model.provider_format)
        bodies = {"nexus": None if limited is None else limited.to_provider(self.model.provider_format)}
        return bodies | {name: self._choose(unlimited, full_body, groups, choose) for name, choose in CHOICES.items()}

    def cut_cycle(self, growth: int, least_kept: int) -> CutCycle:
        """Return the untruncated history at the last call, for the search of the cheapest cut points."""
        groups = self._groups
        sums = (0, *accumulate(groups.sizes))
        return CutCycle(sums, groups.fixed, groups.event, self.available, max(growth, 1), least_kept)

    def output_tokens(self, point: CallPoint) -> int:
        """Return the tokens of the reply."""
        return self._model_tokens(point.reply)

    def _record(self, engine: Engine, point: CallPoint, at_ms: int, budget: int) -> AssembledContext | None:
        """Assemble a call and record it with its reply. If it cannot be assembled, append its messages; return None."""
        _append(engine, point.before)
        event = replace(point.event, at_ms=at_ms)
        settings = replace(engine.settings, model=self.model.name, budget=budget, profile=self._profile)
        request = Request(event, settings=settings, tools=self._tools)
        try:
            ctx = engine.assemble_request(request)
        except (BudgetTooSmall, BadEvent) as error:
            if error.code not in ("budget_too_small", "empty_event"):
                raise
            # The next calls still have this one in their history, as with the other policies.
            messages = event.results or (Message("user", event.content),)
            _append(engine, (*messages, *point.reply), starts_turn=not event.results)
            return None
        engine.record(ctx, AgentResult(point.reply))
        return ctx

    def _choose(
        self, ctx: AssembledContext, full_body: dict[str, Any], groups: _Groups, choose: Choice
    ) -> dict[str, Any] | None:
        """Return the body with the chosen groups; `full_body` itself if all are chosen."""
        available = self.available - groups.fixed - groups.event
        # Results belong to their calls: the group that the event answers is sent with it.
        answered = 0
        if groups.sizes and ctx.current[0].role == "tool":
            answered = 1
        free = len(groups.sizes) - answered
        available -= sum(groups.sizes[free:])
        if available < 0 and choose is not keep_all:
            return None
        chosen = choose(groups.sizes[:free], available)
        if len(chosen) == free:
            return full_body
        indices = [*chosen, *range(free, len(groups.sizes))]
        messages = [message for index in indices for message in groups.members[index]]
        return replace_fields(ctx, history=History.of(messages)).to_provider(self.model.provider_format)

    def _model_tokens(self, messages: Sequence[Message]) -> int:
        """Return the messages' tokens in the model's provider format, rounded up; base tokens are cached."""
        model = self.model
        base = 0
        for message in messages:
            if message not in self._sizes:
                # Thinking goes back only to the model that wrote it, and only in Anthropic's format.
                sends_thinking = model.provider_format == "anthropic" and same_model(message.model, model.name)
                if sends_thinking:
                    shown = message
                else:
                    shown = _without(Thinking, message)
                size = message_tokens(shown, self._unlimited.counter)
                self._sizes[message] = size.on(model.provider_format) + size.optional
            base += self._sizes[message]
        return to_provider_tokens(base, model.token_factor)


def _empty_copy(nx: Engine, model: Model) -> Engine:
    """Return an engine with the same workspace, configuration and profiles, and an empty ledger in memory."""
    return open_engine(
        nx.workspace,
        ledger=":memory:",
        counter=nx.counter,
        settings=nx.settings,
        models={**nx.models, model.name: replace(model, content=None)},  # one factor for all policies
        config=nx.workspace_context.config,
        home=nx.profiles.files.home,
        profiles=nx.profiles.app_profiles,
    )


def _append(engine: Engine, messages: Sequence[Message], *, starts_turn: bool = False) -> None:
    if messages:
        entry = NewEntry(messages=with_sizes(messages, engine.counter), starts_turn=starts_turn)
        engine.ledger.store.commit("main", Commit((entry,)))
