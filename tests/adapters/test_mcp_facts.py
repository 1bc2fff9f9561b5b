"""200 facts that were cut from the contexts of 20 sessions: each is found in at most two calls, and fast."""

from __future__ import annotations

from collections.abc import Callable
from timeit import default_timer

import pytest

import nexus
from adapters.planted_facts import BUDGET, plant, planted_facts
from nexus.adapters.mcp_server.answers import McpAnswers
from nexus.adapters.mcp_server.definitions import ReadArguments, SearchArguments
from nexus.engine import NEXT_MESSAGE

LEAST_FOUND = 190
P95_MS = 50


@pytest.mark.slow
def test_cut_facts_are_found_in_at_most_two_calls(record_property: Callable[..., None]) -> None:
    facts = planted_facts()
    found = 0
    times_ms: list[float] = []

    def timed(name: str, arguments: SearchArguments | ReadArguments) -> dict[str, list[dict[str, str]]]:
        start = default_timer()
        answer = answers.call(name, arguments)
        times_ms.append(1_000 * (default_timer() - start))
        return answer

    with nexus.open(ledger=":memory:", model="gpt-5") as nx:
        plant(nx, facts)
        shown = {fact.session: "" for fact in facts}
        for session in shown:
            ctx = nx.assemble(NEXT_MESSAGE, session=session, budget=BUDGET)
            shown[session] = "\n".join(message.text() for message in ctx.messages)
        cut = [fact for fact in facts if fact.text not in shown[fact.session]]
        answers = McpAnswers(nx)
        answers.call("search", SearchArguments("warm"))
        for fact in facts:
            hits = timed("search", SearchArguments(fact.question))["hits"]
            texts = [hit["text"] for hit in hits]
            if hits and not any(fact.answer in text for text in texts):
                read = timed("read", ReadArguments(hits[0]["session"], hits[0]["at"]))
                texts += [row["text"] for row in read["messages"]]
            found += any(fact.answer in text for text in texts)
    p95 = sorted(times_ms)[int(0.95 * len(times_ms))]
    record_property("figures", f"{found} of {len(facts)} found, {len(cut)} were cut, p95 {p95:.1f} ms")
    assert len(cut) == len(facts) == 200
    assert found >= LEAST_FOUND
    assert p95 < P95_MS
