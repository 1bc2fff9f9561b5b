"""Texts of users that no cut makes room for: refused after one count, before they are escaped, copied and fitted."""

from __future__ import annotations

import time
from contextlib import suppress
from statistics import median

import pytest

import nexus
from nexus.assembly.profiles.builtin import PROFILES
from nexus.errors import BudgetTooSmall, ContextOverflow
from nexus.tokens.counter import get_counter

CHARS = 500_000
HOSTILE = {
    "open tag": "[mood",
    "closing tag": "</human_input>\n",
    "escaped tag": "<\\\\human_input>\n",
    "control characters": "\x00",
    "direction marks": "<\u202e",
    "tag characters": "<\U000e0068",
    "quotes": '"',
    "backslashes": "\\",
    "brackets": "[{",
    "emoji": "\U0001f600",
    "Chinese": "请告诉我答案",
    "fences": "```",
}


class RecordingCounter:
    """The default counter, with the lengths of the long texts that it counted."""

    name = "o200k_base"

    def __init__(self) -> None:
        self.long: list[int] = []
        self._counter = get_counter()

    def count(self, text: str) -> int:
        if len(text) >= CHARS // 2:
            self.long.append(len(text))
        return self._counter.count(text)


def hostile(kind: str, chars: int = CHARS) -> str:
    return HOSTILE[kind] * (chars // len(HOSTILE[kind]))


@pytest.mark.parametrize("profile", ["layered", "tagged", "turnlog", "repl"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hopeless_text_is_counted_once(kind: str, profile: str) -> None:
    counter = RecordingCounter()
    with nexus.open(counter=counter) as nx, pytest.raises(BudgetTooSmall, match="need at least ") as refused:
        nx.assemble(hostile(kind), profile=profile, budget=32_000)
    assert len(counter.long) == 1
    error = refused.value
    assert error.is_lower_bound
    assert error.needed_tokens == sum(error.parts.values()) > error.available_tokens == 32_000
    assert max(error.parts, key=lambda part: error.parts[part]) == "current event"


@pytest.mark.parametrize("profile", ["layered", "tagged", "turnlog"])
def test_hopeless_text_costs_at_most_ten_times_fitting_prose(profile: str) -> None:
    prose = "The index of passages is decided, and the summary comes next week. " * (CHARS // 67)
    with nexus.open() as nx:

        def seconds(text: str, budget: int) -> float:
            start = time.process_time()
            with suppress(BudgetTooSmall):
                nx.assemble(text, profile=profile, budget=budget)
            return time.process_time() - start

        seconds(prose, 400_000)
        usual = median(seconds(f"{number} {prose}", 400_000) for number in range(5))
        for kind in HOSTILE:
            assert median(seconds(f"{number} {hostile(kind)}", 32_000) for number in range(3)) < 10 * usual, kind


@pytest.mark.parametrize("profile", PROFILES)
def test_lower_bound_is_below_the_tokens_that_the_text_needs(profile: str) -> None:
    """A budget of the reported tokens is still too small, or just enough, and a large one always is enough."""
    text = hostile("closing tag", 60_000)
    with nexus.open() as nx:
        with pytest.raises(BudgetTooSmall) as refused:
            nx.assemble(text, profile=profile, budget=9_000)
        assert refused.value.is_lower_bound
        with pytest.raises(BudgetTooSmall) as exact:
            nx.assemble(text, profile=profile, budget=refused.value.needed_tokens)
        assert not exact.value.is_lower_bound
        nx.assemble(text, profile=profile, budget=exact.value.needed_tokens)


def test_short_text_is_refused_with_the_exact_size() -> None:
    with nexus.open() as nx, pytest.raises(BudgetTooSmall) as refused:
        nx.assemble("word " * 3_000, budget=1_000)
    assert not refused.value.is_lower_bound
    assert "at least" not in str(refused.value)


def test_recovery_sends_no_more_than_a_hopeless_text() -> None:
    """The window is far smaller than the text, so the next try is what is never cut, not 80 % of what failed."""
    text, sent = "The index is decided. " * 3_000, list[int]()

    def send(ctx: nexus.AssembledContext) -> object:
        sent.append(ctx.token_budget.used.total)
        raise RuntimeError("This model's maximum context length is 2000 tokens. However, you sent 45000 tokens.")

    with nexus.open(model="gpt-4o") as nx:
        for number in range(12):
            ctx = nx.assemble(f"{number} " + "word " * 3_000)
            nx.record(ctx, nexus.AgentResult((nexus.assistant("ok " * 1_000),)))
        with pytest.raises(ContextOverflow):
            nexus.call(nx, text, send, compact=False)
    assert sent[0] > 50_000
    assert sent[1] < 18_000
