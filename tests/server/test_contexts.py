"""Contexts that wait for their reply: bounded in bytes, per tenant and in all, whatever a message weighs."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus.errors import ServerCallFailed
from nexus.server import contexts
from nexus.server.client import AgentClient
from nexus.server.contexts import WaitingContext, WaitingContexts, waiting_context
from server.running import running

HUGE = "word " * 200_000
"""A message of 1 MB."""


def assembled(agent: AgentClient, text: str) -> str:
    agent.begin(text)
    return agent.assemble().context_id


def test_few_huge_messages_displace_the_oldest_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MAX_CONTEXT_BYTES", 5 << 20)
    with running(tmp_path) as server:
        client = server.client()
        agents = [client.create_agent(f"a{number}", model="gpt-4.1") for number in range(8)]
        small = client.create_agent("small")
        first = assembled(small, "Hello?")
        ids = [assembled(agent, HUGE) for agent in agents]
        (tenant,) = server.tenants.tenants()
        assert tenant.contexts.bytes <= 5 << 20
        assert 1 < len(tenant.contexts) < 6
        warnings = [len(agent.record("Hi.", context).warnings) for agent, context in zip(agents, ids, strict=True)]
        assert warnings == sorted(warnings, reverse=True), "the oldest go first"
        assert warnings[0] == 1 and warnings[-1] == 0
        assert len(small.record("Hi.", first).warnings) == 1


def test_huge_list_that_went_is_mirrored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body has the end of the list alone; the whole of it waits for the record."""
    monkeypatch.setattr(contexts, "MAX_CONTEXT_BYTES", 3 << 20)
    with running(tmp_path) as server:
        client = server.client()
        agents = [client.create_agent(name) for name in ("a", "b")]
        turns = [{"role": "user", "content": HUGE}, {"role": "assistant", "content": "Yes."}]
        lists = [[*turns, *turns, {"role": "user", "content": f"And {name}?"}] for name in ("a", "b")]
        ids = [agent.mirror(messages).context_id for agent, messages in zip(agents, lists, strict=True)]
        with pytest.raises(ServerCallFailed, match="call `mirror` with the same list"):
            agents[0].record("Hi.", ids[0])
        again = agents[0].mirror(lists[0]).context_id
        assert agents[0].record("Hi.", again).status == "completed"


def test_all_tenants_share_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MAX_ALL_BYTES", 3 << 20)
    names = {f"token-{number}-of-a-tenant-0123456789": f"t{number}" for number in range(4)}
    with running(tmp_path, tokens=names) as server:
        agents = [server.client(token).create_agent("a", model="gpt-4.1") for token in names]
        ids = [assembled(agent, HUGE) for agent in agents]
        assert sum(tenant.contexts.bytes for tenant in server.tenants.tenants()) <= 3 << 20
        warnings = [len(agent.record("Hi.", context).warnings) for agent, context in zip(agents, ids, strict=True)]
        assert warnings == [1, 0, 0, 0]


def retained(value: object) -> int:
    """The bytes of the texts that a value holds, without those of the engine that it names."""
    seen: set[int] = set()
    waiting, total = [value], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or type(one).__name__ in {"module", "type", "Engine", "WindowCache", "Model"}:
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes)):
            total += len(one)
        elif callable(one) and hasattr(one, "__closure__"):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        elif isinstance(one, msgspec.Struct):
            waiting += [getattr(one, name) for name in one.__struct_fields__]
        else:
            waiting += gc.get_referents(one)
    return total


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_size_is_about_what_a_context_retains(*, is_mirrored: bool) -> None:
    with nexus.open(ledger=":memory:", model="gpt-4o") as nx:
        if is_mirrored:
            said: list[Any] = [{"role": "user", "content": f"{number} {HUGE[:100_000]}"} for number in range(40)]
            replies = [{"role": "assistant", "content": "Yes."}] * 40
            messages = [message for pair in zip(said, replies, strict=True) for message in pair][:-1]
            ctx = nx.mirror(messages)
        else:
            for number in range(40):
                sent = nx.assemble(f"{number} {HUGE[:100_000]}")
                nx.record(sent, nexus.AgentResult((nexus.assistant("Yes."),)))
            ctx = nx.begin("And now?").assemble()
        waiting, size = waiting_context(ctx)
        assert size / 3 < retained(waiting) < size * 3 + 100_000


def test_context_with_a_cut_does_not_retain_what_it_omits() -> None:
    with nexus.open(ledger=":memory:", model="gpt-4.1") as nx:
        for number in range(40):
            sent = nx.assemble(f"{number} {HUGE[:20_000]}", session="a", budget=500_000)
            nx.record(sent, nexus.AgentResult((nexus.assistant("Yes."),)))
        turn = nx.begin("And now?", session="a", budget=10_000)
        waiting, size = waiting_context(turn.assemble())
        assert waiting.cut is not None
        assert retained(waiting) < size * 3 + 100_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 120)), max_size=40))
def test_bytes_are_bounded_and_the_newest_stays(steps: list[tuple[str, int]]) -> None:
    with nexus.open(ledger=":memory:") as nx, pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "MAX_CONTEXT_BYTES", 100)
        patch.setattr(contexts, "MAX_ALL_BYTES", 150)
        ctx = nx.assemble("Hello?")
        every = WaitingContexts()
        tenants = {name: every.of(name) for name in "abc"}
        kept: list[tuple[str, str, int]] = []
        for number, (name, size) in enumerate(steps):
            tenants[name].keep(str(number), WaitingContext(ctx, size))
            kept = [one for one in kept if tenants[one[0]].get(one[1])] + [(name, str(number), size)]
            assert tenants[name].get(str(number)) is ctx
            for tenant in "abc":
                sizes = [one[2] for one in kept if one[0] == tenant]
                assert tenants[tenant].bytes == sum(sizes)
                assert sum(sizes) <= 100 or len(sizes) == 1
            assert every.bytes <= 150 or len(kept) == 1
