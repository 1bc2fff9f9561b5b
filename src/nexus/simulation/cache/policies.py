"""Truncation policies, each as the bodies that it sends: Nexus, and three common ones.

All get the same calls. The other policies choose from the messages that Nexus shows without a limit, and the same code
renders their bodies with the same cache breakpoints; only the choice differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

import msgspec

from nexus.assembly.record import with_sizes
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext
from nexus.engine import Engine, open_engine
from nexus.errors import BudgetTooSmall, EmptyEvent
from nexus.providers.prompt_cache import CutCycle
from nexus.simulation.cache.points import CallPoint, RecordedSession
from nexus.tokens.budget import compute_budget
from nexus.tokens.measure import message_tokens
from nexus.tokens.model import Model
from nexus.tokens.model_names import same_model
from nexus.types.history import History
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import Message, Thinking
from nexus.types.request import AgentResult, Request, Routing

NO_LIMIT = 1_000_000_000
"""A budget that no history exceeds."""

Choice: TypeAlias = Callable[[Sequence[int], int], list[int]]
"""Takes the tokens of each group, oldest first, and the available tokens; returns the indices of the groups to send."""


def sliding_window(groups: Sequence[int], available: int) -> list[int]:
    """Drop the oldest groups until the rest fits, for each call again."""
    first, used = len(groups), 0
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

    Args:
        nx: The engine whose settings are used.
        session: The recorded calls.
        model: The model; the provider format is its own.
        budget: Available tokens; by default those of the model's context window.
        tools: Tool definitions sent with each call.
        profile: Name of the profile.
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
        self.model, self.available = model, compute_budget(model, available_tokens=budget).available
        self._tools, self._profile = tuple(tools), profile
        self._sizes: dict[Message, int] = {}
        self._groups = _Groups([], [], 0, 0)
        # One engine never truncates: its contexts are the material of the other policies.
        self._unlimited, self._limited = _empty_copy(nx), _empty_copy(nx)
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
        groups = self._groups = self._group(unlimited)
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
        return self._model_tokens(sum(map(self._size, point.reply)))

    def _record(self, engine: Engine, point: CallPoint, at_ms: int, budget: int) -> AssembledContext | None:
        """Assemble a call and record it with its reply. If it cannot be assembled, append its messages; return None."""
        _append(engine, point.before)
        event = msgspec.structs.replace(point.event, at_ms=at_ms)
        request = Request(
            event,
            Routing(),
            model=self.model.name,
            tools=self._tools,
            available_tokens=budget,
            profile=self._profile,
        )
        try:
            ctx = engine.assemble_request(request)
        except (BudgetTooSmall, EmptyEvent):
            messages = event.results or (Message("user", event.content),)
            _append(engine, (*messages, *point.reply), starts_turn=not event.results)
            return None
        engine.record(ctx, AgentResult(point.reply))
        return ctx

    def _group(self, ctx: AssembledContext) -> _Groups:
        """Return the history in groups: a message, or an assistant's calls with their results."""
        used = ctx.token_budget.used
        history = [*ctx.history]
        starts = [at for at, message in enumerate(history) if message.role != "tool" or at == 0]
        ends = [*starts[1:], *([len(history)] if history else [])]
        members = [history[first:end] for first, end in zip(starts, ends, strict=True)]
        sizes = [self._model_tokens(sum(map(self._size, group))) for group in members]
        return _Groups(members, sizes, used.system_prompt + used.tools, used.event)

    def _choose(
        self, ctx: AssembledContext, full_body: dict[str, Any], groups: _Groups, choose: Choice
    ) -> dict[str, Any] | None:
        """Return the body with the chosen groups; `full_body` itself if all are chosen."""
        available = self.available - groups.fixed - groups.event
        # Results belong to their calls: the group that the event answers is sent with it.
        answered = 1 if groups.sizes and ctx.current[0].role == "tool" else 0
        free = len(groups.sizes) - answered
        available -= sum(groups.sizes[free:])
        if available < 0 and choose is not keep_all:
            return None
        chosen = choose(groups.sizes[:free], available)
        if len(chosen) == free:
            return full_body
        indices = [*chosen, *range(free, len(groups.sizes))]
        messages = [message for index in indices for message in groups.members[index]]
        return replace(ctx, history=History.of(messages)).to_provider(self.model.provider_format)

    def _size(self, message: Message) -> int:
        """Return the base tokens of a message in the model's provider format; cached."""
        if message not in self._sizes:
            # Thinking goes back only to the model that wrote it, and only in Anthropic's format.
            sends_thinking = self.model.provider_format == "anthropic" and same_model(message.model, self.model.name)
            size = message_tokens(message if sends_thinking else _without_thinking(message), self._unlimited.counter)
            self._sizes[message] = size.on(self.model.provider_format) + size.optional
        return self._sizes[message]

    def _model_tokens(self, base: int) -> int:
        """Convert base tokens to the model's own, rounded up."""
        return to_provider_tokens(base, self.model.token_factor)


def _empty_copy(nx: Engine) -> Engine:
    """Return an engine with the same workspace, configuration and profiles, and an empty ledger in memory."""
    return open_engine(
        nx.workspace,
        ledger=":memory:",
        counter=nx.counter,
        model=nx.model,
        timezone=nx.timezone,
        models=nx.models,
        config=nx.workspace_context.config,
        home=nx.profiles.files.home,
        profiles=nx.profiles.app_profiles,
        mode=nx.workspace_context.mode,
        clock=nx.workspace_context.clock,
    )


def _append(engine: Engine, messages: Sequence[Message], *, starts_turn: bool = False) -> None:
    if messages:
        entry = NewEntry(messages=with_sizes(messages, engine.counter), starts_turn=starts_turn)
        engine.store.commit(Routing().session, Commit((entry,)))


def _without_thinking(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
    return message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=parts)
