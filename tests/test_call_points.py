"""Every call point of every real session, at six budgets, in every form: valid, within budget, explained, stable."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import nexus
from nexus.assembly.fit.cut_history import LEAST_HISTORY, REACH
from nexus.assembly.fit.omission_notice import omission_notice, omission_notice_tokens
from nexus.assembly.fit.repair import NO_RESULT
from nexus.assembly.fit.truncate_results import LEAST_TOKENS, truncate_results
from nexus.context import AssembledContext
from nexus.errors import BadEvent, BudgetTooSmall
from nexus.interop.detect import read
from nexus.interop.transcript import Transcript
from nexus.tokens.counter import get_counter
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model import resolve
from nexus.tokens.model_names import same_model
from nexus.types.message import Message, Note, Text, TokenSize, ToolResult
from support.replay import CallPoint, Mark, append, call_points, mark, record
from support.validity import CHECKS, Recounter

Slice: TypeAlias = tuple[int, int | None, int]

BUDGETS = (2_000, 4_000, 8_000, 16_000, 32_000, 128_000)
MODELS = ("gpt-4o", "own", "gemini-2.5-pro")
"""One for each wire; `own` is the Claude model that the session was held with."""
WHOLE = (0, None, 1)
"""All conversations of a file, as the start, stop and step of a slice."""
FIRST = (0, 2, 1)
SLICES = ((2, None, 4), (3, None, 4), (4, None, 4), (5, None, 4))
"""The conversations after the first two, shared out so that workers can take them at the same time."""
SEPARATE_BUDGETS = (2_000, 4_000, 8_000, 32_000)
"""For these conversations: the longest has 13,000 tokens, so that the two budgets left out show what the last one does."""
SHORT = 4
"""Sessions up to this number are short: `make test` walks through them, `make test-all` through the others too."""


def case(file: str, part: Slice, way: str, *, slow: bool) -> Any:
    return pytest.param(file, part, way, marks=[pytest.mark.slow] if slow else [], id=f"{file}-{part[0]}-{way}")


CASES = [
    *(
        case(f"claude_code/session_{number:02d}.jsonl", WHOLE, model, slow=number > SHORT)
        for number in range(1, 11)
        for model in MODELS
    ),
    *(case("tau_airline.jsonl", FIRST, model, slow=False) for model in MODELS),
    *(case("tau_airline.jsonl", part, model, slow=True) for part in SLICES for model in MODELS),
]
WAYS = ("middle_out", "compacted", "whole results")
"""Other ways to fit than the default: a strategy, compaction by rule whenever it is due, results never shortened."""
OTHER_CASES = [
    case(file, part, way, slow=slow)
    for file, part, slow in (
        ("claude_code/session_05.jsonl", WHOLE, False),
        ("claude_code/session_08.jsonl", WHOLE, True),
        ("tau_airline.jsonl", (1, None, 4), True),
    )
    for way in WAYS
]
OTHER_BUDGETS = (4_000, 16_000, 32_000)
WIRES: dict[str, Callable[[AssembledContext], dict[str, Any]]] = {
    "openai": AssembledContext.to_openai,
    "responses": AssembledContext.to_responses,
    "anthropic": AssembledContext.to_anthropic,
    "gemini": AssembledContext.to_gemini,
}
CLOSERS = {"openai": "]}", "responses": "]}", "anthropic": "]}]}", "gemini": "]}]}"}
OWN_WIRES = {"openai": ("openai", "responses"), "anthropic": ("anthropic",), "gemini": ("gemini",)}
"""The forms that a model of each family is called in."""
RECOUNT = Recounter()


COUNTER = get_counter()


@pytest.mark.parametrize(("file", "part", "model"), CASES)
def test_every_call_point_of_real_sessions_is_valid_within_budget_and_extends_the_last_call(
    file: str, part: Slice, model: str, data: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "AGENTS.md").write_text("# Rules\n\nYou MUST say what you do not know.\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_text("- 2026-01-05: the team prefers short answers.\n")
    figures: Counter[str] = Counter()
    for transcript in transcripts(data / file, part):
        for budget in SEPARATE_BUDGETS if part in SLICES else BUDGETS:
            name = own_model(transcript) if model == "own" else model
            Walk(tmp_path, name, budget, figures).through(transcript)
    record_property("figures", dict(figures))
    assert figures["calls checked"] > 0


@pytest.mark.parametrize(("file", "part", "way"), OTHER_CASES)
def test_the_same_holds_with_every_strategy_and_with_compaction(
    file: str, part: Slice, way: str, data: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures: Counter[str] = Counter()
    for transcript in transcripts(data / file, part):
        for budget in OTHER_BUDGETS:
            Walk(tmp_path, own_model(transcript), budget, figures, way).through(transcript)
    record_property("figures", dict(figures))
    assert figures["calls checked"] > 0
    assert way != "compacted" or figures["compactions"] > 0


def own_model(transcript: Transcript) -> str:
    return transcript.model if transcript.model.startswith("claude") else "claude-sonnet-4-5"


def transcripts(path: Path, part: Slice) -> Iterator[Transcript]:
    return islice(read(path), *part)


class Walk:
    """One session at one budget, from its first call point to its last."""

    def __init__(self, workspace: Path, model: str, budget: int, figures: Counter[str], way: str = "") -> None:
        options: dict[str, Any] = {"strategy": way} if way == "middle_out" else {}
        options |= {"max_tool_result_tokens": 0} if way == "whole results" else {}
        if way == "middle_out":
            # One factor: the groups that a cut keeps in front stay, also when later content counts more. The oracle does
            # not know them.
            options["models"] = {model: {"token_factor": resolve(model).token_factor}}
        self.nx = nexus.open(workspace, ledger=":memory:", clock_ms=lambda: 1_760_000_000_000, **options)
        self.way = way
        self.model, self.budget, self.figures = model, budget, figures
        self.raw: list[Message] = []
        self.opening = False
        self.before: dict[str, str] = {}
        self.cuts, self.new_tokens, self.last_total = 0, 0, 0
        self.least_drop = budget

    def through(self, transcript: Transcript) -> None:
        for point in call_points(transcript):
            if isinstance(point, Mark):
                mark(self.nx, "s", point)
                self.raw, self.opening, self.before = [], point.summary is not None, {}
                self.last_total = 0
            else:
                self.at(point)
        if self.cuts:
            assert self.cuts <= self.new_tokens / self.least_drop + 1, "more cuts than new tokens explain"
        self.nx.close()

    def at(self, point: CallPoint) -> None:
        append(self.nx, "s", *point.appended)
        self.raw.extend(point.appended)
        event = point.event
        if not event.content and not event.results:
            append(self.nx, "s", *point.reply)
            self.raw.extend(point.reply)
            return
        self.figures[f"call points at {self.budget:>7,}"] += 1
        try:
            whole = self.nx.assemble(event, session="s", model=self.model, budget=10_000_000)
        except BadEvent:
            self.figures["events without anything to show"] += 1
            assert event.results, "only results without a call may be empty"
            record(self.nx, "s", point, BudgetTooSmall(0, 0, {}))
            self.raw.extend([*event.results, *point.reply])
            return
        shortened = self.way != "whole results"
        several = tuple(LEAST_TOKENS << power for power in range(8))
        needed = self.never_cut(point, whole, limits=(LEAST_TOKENS,) if shortened else ())
        at_least = self.never_cut(point, whole, limits=several if shortened else (), shortest_marker=True)
        needed_whole = self.never_cut(point, whole)
        try:
            ctx = self.nx.assemble(event, session="s", model=self.model, budget=self.budget)
        except BudgetTooSmall as refusal:
            # A cut leaves other content, whose factor is not in the refusal.
            room = self.room(whole) * 0.93
            assert needed > room, f"refused, though what is never cut needs {needed} of {room}: {refusal}"
            self.figures[f"refused     at {self.budget:>7,}"] += 1
            record(self.nx, "s", point, refusal)
            self.before, self.last_total = {}, 0
        else:
            if self.way == "compacted" and ctx.compaction_due and self.nx.compact("s", plan=ctx.plan()):
                self.figures["compactions"] += 1
                self.before, self.opening = {}, True
                ctx = self.nx.assemble(event, session="s", model=self.model, budget=self.budget)
            room = self.room(ctx)
            assert at_least <= room, f"not refused, though what is never cut needs {at_least} of {room}"
            self.check(ctx, event_texts(point), squeezed=needed_whole > room)
            record(self.nx, "s", point, ctx)
        self.raw.extend([*(event.results or (Message("user", event.content),)), *point.reply])

    def room(self, ctx: AssembledContext) -> int:
        """The budget in base tokens of this context's content."""
        factor = ctx.provenance.manifest.factor
        return self.budget if factor == 1 else int((self.budget - 3) / factor)

    def never_cut(
        self, point: CallPoint, whole: AssembledContext, *, limits: tuple[int, ...] = (), shortest_marker: bool = False
    ) -> int:
        """The oracle: base tokens of system, tools, event (without memory), last group, and the marker of a cut.

        Results are shortened to whichever of the limits makes them smallest, if there are any. What a call takes at the
        very least needs several limits and the shortest marker.
        """
        groups: list[list[Message]] = []
        for message in self.raw:
            if message.role != "tool":
                groups.append([message])
            elif groups:
                groups[-1].append(message)
        groups = [group for group in groups if shows(group[0]) and group[0].role != "system"]
        system = COUNTER.count(json.dumps(whole.system_prompt, ensure_ascii=False)) + 3 + 40
        event = [least(without_memory(message), limits) for message in whole.event]
        wire = whole.accounting.model_info.provider_format
        current = sum(size.on(wire) + size.optional for size in (size_of(m) for m in event))
        last = [least(message, limits) for message in groups[-1]] if groups else []
        thinks = bool(point.event.results) and wire == "anthropic"
        held = sum(
            size.on(wire) + size.optional * (thinks and same_model(message.model, self.model))
            for message, size in ((m, size_of(m)) for m in last)
        )
        answered = {result.call_id for message in last for result in message.results()}
        if point.event.content:
            for call in (call for message in last for call in message.calls() if call.id not in answered):
                lacking = Message("tool", (ToolResult(call.id, (Text(NO_RESULT),), call.name),))
                held += size_of(lacking).on(wire)
        if len(limits) != 1 and not point.event.results:
            held = 0  # a last group that a user's message does not answer may go
        shortest = message_tokens(Message("user", (Text(omission_notice("s", 1, 1)),)), COUNTER).on(wire)
        largest = omission_notice_tokens(
            "s", 999_999, 999_999_999, summary=True, lookup="command", wire=wire, counter=COUNTER
        )
        marker = (shortest if shortest_marker else largest) if len(groups) > 1 or self.opening else 0
        fits_whole = whole.token_budget.used.total <= self.budget
        return system + current + held + (0 if fits_whole else marker)

    def check(self, ctx: AssembledContext, said: list[str], *, squeezed: bool) -> None:
        again = self.nx.assemble_request(request_of(self, ctx))
        total = ctx.token_budget.used.total
        assert ctx.token_budget.remaining >= 0
        bodies = {wire: to_body(ctx) for wire, to_body in WIRES.items()}
        for other, body in bodies.items():
            assert CHECKS[other](body) == [], f"{other} at {self.budget}"
            self.figures["bodies validated"] += 1
        for wire in OWN_WIRES[ctx.accounting.model_info.provider_format]:
            counted = RECOUNT.count(bodies[wire]) * ctx.provenance.manifest.factor
            assert counted <= total, f"{wire} has more tokens than its account"
            sent = json.dumps(bodies[wire], ensure_ascii=False)
            assert sent == json.dumps(WIRES[wire](again), ensure_ascii=False), "assembling twice gives other bytes"
            assert all(is_in(one, sent) for one in said), "the event is not in the body"
            self.extends(wire, bodies[wire], cut=ctx.cut is not None)
        self.figures["calls checked"] += 1
        if ctx.cut and not squeezed and len(ctx.history) > len(ctx.history.opening) + 1:
            self.cuts += 1
            self.figures[f"cuts        at {self.budget:>7,}"] += 1
            pinned = sum(
                item.tokens for item in ctx.accounting.token_breakdown if item.name == "first task and pinned messages"
            )
            fixed = total - ctx.token_budget.used.history + pinned
            low = max(REACH * self.budget, fixed + LEAST_HISTORY * (self.budget - fixed))
            self.least_drop = min(self.least_drop, self.budget - low)
        self.new_tokens += max(total - self.last_total, 0) if not ctx.cut else self.budget - self.last_total
        self.last_total = total

    def extends(self, wire: str, body: dict[str, Any], *, cut: bool) -> None:
        """The earlier serialised body, less its closing brackets and cache marks, is a prefix of this one."""
        text = json.dumps(unmarked(body), ensure_ascii=False, separators=(",", ":"))
        if self.before.get(wire) and not cut:
            assert text.startswith(self.before[wire]), f"{wire}: the prefix moved without a cut"
            self.figures["prefixes kept"] += 1
        self.before[wire] = text.removesuffix(CLOSERS[wire])


def request_of(walk: Walk, ctx: AssembledContext) -> nexus.Request:
    """The same request again, as a value of its own."""
    notes = tuple(part for message in ctx.event for part in message.parts if not isinstance(part, Note))
    results = ctx.event if ctx.event[0].role == "tool" else ()
    event = nexus.Event(content=() if results else notes, results=results)
    settings = walk.nx.settings.with_changes({"model": walk.model, "budget": walk.budget})
    return nexus.Request(event, "s", settings)


def event_texts(point: CallPoint) -> list[str]:
    if point.event.results:
        items = [item for m in point.event.results for result in m.results() for item in result.content]
    else:
        items = list(point.event.content)
    return [item.text for item in items if isinstance(item, Text) and item.text.strip()][:1]


def is_in(text: str, sent: str) -> bool:
    """Whether a text of the event is in a body, whole or shortened as large results of tools are."""
    whole = json.dumps(text, ensure_ascii=False)[1:-1] in sent
    return whole or (COUNTER.count(text) > LEAST_TOKENS - 10 and "characters left out here" in sent)


@cache
def size_of(message: Message) -> TokenSize:
    return message_tokens(message, COUNTER)


@cache
def least(message: Message, limits: tuple[int, ...]) -> Message:
    """Return the message with results shortened to whichever of the limits makes it smallest."""
    if size_of(message).tokens <= LEAST_TOKENS:
        return message
    tried = [truncate_results(message, limit, COUNTER, keeps_images=False) for limit in limits]
    return min([message, *tried], key=lambda one: size_of(one).tokens)


def without_memory(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not (isinstance(part, Note) and part.kind == "memory"))
    return Message(message.role, parts, message.id)


def shows(message: Message) -> bool:
    """Whether a message is shown at all: it has a text, an image or a call."""
    return any(part.text.strip() if isinstance(part, Text) else True for part in message.parts if not is_thinking(part))


def is_thinking(part: object) -> bool:
    return isinstance(part, nexus.Thinking)


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value
