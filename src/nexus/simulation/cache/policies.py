"""Ways to make a growing history fit, each as the bodies that it sends: Nexus itself, and three that are common.

All are given the same calls. The other policies choose from the messages that Nexus shows when nothing limits it, and
their bodies are rendered, with the same cache marks, by the same code; only the choice differs.
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
"""Given the tokens of each group, oldest first, and the room: the numbers of the groups that are sent, rising."""


def sliding_window(groups: Sequence[int], room: int) -> list[int]:
    """A sliding window: the oldest groups go until the rest fits, anew for each call."""
    first, used = len(groups), 0
    while first and used + groups[first - 1] <= room:
        first -= 1
        used += groups[first]
    return [*range(first, len(groups))]


def refill(groups: Sequence[int], room: int) -> list[int]:
    """The budget filled again for each call: the newest groups first, and every older one that still fits."""
    kept: list[int] = []
    for number in range(len(groups) - 1, -1, -1):
        if groups[number] <= room:
            room -= groups[number]
            kept.append(number)
    return kept[::-1]


def keep_all(groups: Sequence[int], room: int) -> list[int]:
    """No trimming: the whole history, whatever the room."""
    del room
    return [*range(len(groups))]


CHOICES: dict[str, Choice] = {"window": sliding_window, "refill": refill, "nothing": keep_all}
NAMES = ("nexus", *CHOICES)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The never-cut history of one call: its groups with their tokens, and the tokens of what stands around it."""

    members: list[list[Message]]
    sizes: list[int]
    fixed: int
    event: int


class Replay:
    """A session played again in ledgers in memory, call by call, with what each policy sends. Close it, or use `with`.

    `budget` is the available tokens, by default those of the model's window; `tools` are sent with each call.
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
        self._whole, self._fitted = _copy(nx), _copy(nx)
        for engine in (self._whole, self._fitted):
            _append(engine, session.instructions)

    def close(self) -> None:
        """Closes the ledgers in memory."""
        self._whole.close()
        self._fitted.close()

    def bodies(self, point: CallPoint, at_ms: int) -> dict[str, dict[str, Any] | None] | None:
        """What each policy sends at this call; None for one that refuses it, as its event alone is over the budget.

        None for all of them where the event has nothing to show: then no call is made.
        """
        whole = self._assembled(self._whole, point, at_ms, NO_LIMIT)
        fitted = self._assembled(self._fitted, point, at_ms, self.available)
        if whole is None:
            return None
        groups = self._groups = self._grouped(whole)
        uncut = whole.to_provider(self.model.wire)
        bodies = {"nexus": None if fitted is None else fitted.to_provider(self.model.wire)}
        return bodies | {name: self._chosen(whole, uncut, groups, choose) for name, choose in CHOICES.items()}

    def course(self, growth: int, least: int) -> CutCycle:
        """The never-cut history at the last call, as a course on which the cheapest marks can be sought."""
        groups = self._groups
        sums = (0, *accumulate(groups.sizes))
        return CutCycle(sums, groups.fixed, groups.event, self.available, max(growth, 1), least)

    def output_tokens(self, point: CallPoint) -> int:
        """The tokens of the answer."""
        return self._scaled(sum(map(self._size, point.reply)))

    def _assembled(self, engine: Engine, point: CallPoint, at_ms: int, budget: int) -> AssembledContext | None:
        """The context of the call, already recorded with its answer; None where it is refused: then all is appended."""
        _append(engine, point.before)
        event = msgspec.structs.replace(point.event, at_ms=at_ms)
        given: dict[str, Any] = {"tools": self._tools, "available_tokens": budget, "profile": self._profile}
        request = Request(event, Routing(), model=self.model.name, **given)
        try:
            ctx = engine.assemble_request(request)
        except (BudgetTooSmall, EmptyEvent):
            said = event.results or (Message("user", event.content),)
            _append(engine, (*said, *point.reply), opens_turn=not event.results)
            return None
        engine.record(ctx, AgentResult(point.reply))
        return ctx

    def _grouped(self, ctx: AssembledContext) -> _Groups:
        """The history in groups: a message, or an assistant's calls with their results."""
        used = ctx.token_budget.used
        history = [*ctx.history]
        starts = [at for at, message in enumerate(history) if message.role != "tool" or at == 0]
        ends = [*starts[1:], *([len(history)] if history else [])]
        members = [history[first:end] for first, end in zip(starts, ends, strict=True)]
        sizes = [self._scaled(sum(map(self._size, group))) for group in members]
        return _Groups(members, sizes, used.system_prompt + used.tools, used.event)

    def _chosen(
        self, ctx: AssembledContext, uncut: dict[str, Any], groups: _Groups, choose: Choice
    ) -> dict[str, Any] | None:
        """The body with the groups that are chosen; `uncut` itself where all of them are."""
        room = self.available - groups.fixed - groups.event
        # Results belong to their calls: the group that the event answers is sent with it.
        answered = 1 if groups.sizes and ctx.current[0].role == "tool" else 0
        free = len(groups.sizes) - answered
        room -= sum(groups.sizes[free:])
        if room < 0 and choose is not keep_all:
            return None
        kept = choose(groups.sizes[:free], room)
        if len(kept) == free:
            return uncut
        numbers = [*kept, *range(free, len(groups.sizes))]
        messages = [message for number in numbers for message in groups.members[number]]
        return replace(ctx, history=History.of(messages)).to_provider(self.model.wire)

    def _size(self, message: Message) -> int:
        """Base tokens in the model's wire form."""
        found = self._sizes.get(message)
        if found is None:
            sent = message if self._sends_thinking(message) else _without_thinking(message)
            size = message_tokens(sent, self._whole.counter)
            found = self._sizes[message] = size.on(self.model.wire) + size.optional
        return found

    def _sends_thinking(self, message: Message) -> bool:
        """Thinking goes back to the model that wrote it, in Anthropic's form alone."""
        return self.model.wire == "anthropic" and same_model(message.model, self.model.name)

    def _scaled(self, base: int) -> int:
        """Base tokens as the model's own, rounded up."""
        return to_provider_tokens(base, self.model.token_factor)


def _copy(nx: Engine) -> Engine:
    """An engine like this one with an empty ledger in memory."""
    given: dict[str, Any] = {
        "model": nx.model,
        "timezone": nx.timezone,
        "models": nx.models,
        "config": nx.workspace_context.config,
        "home": nx.profiles.files.home,
        "profiles": nx.profiles.app_profiles,
        "mode": nx.workspace_context.mode,
        "clock": nx.workspace_context.clock,
    }
    return open_engine(nx.workspace, ledger=":memory:", counter=nx.counter, **given)


def _append(engine: Engine, messages: Sequence[Message], *, opens_turn: bool = False) -> None:
    if messages:
        entry = NewEntry(messages=with_sizes(messages, engine.counter), opens_turn=opens_turn)
        engine.store.commit(Routing().session, Commit((entry,)))


def _without_thinking(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
    return message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=parts)
