"""`/metrics` in Prometheus' text format: tokens, cost, cache, cuts, compactions and errors of model calls."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nexus.errors import ServerCallFailed
from nexus.server.usage import MAX_MODELS, OTHER, ModelCounts
from nexus.testing.model_server import fail, reply
from nexus.types.request import TokenUsage
from server.running import TOKEN, Running, process, running

SECRET = "the code word is heliotrope"


def metrics(server: Running, token: str = TOKEN) -> dict[tuple[str, ...], float]:
    """Return the values of a page by name and labels without the tenant."""
    status, headers, body = server.http("GET", "/metrics", None, {"Authorization": f"Bearer {token}"})
    assert status == 200 and headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "tenant")): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_calls_are_counted_with_tokens_cost_and_cache_share(tmp_path: Path) -> None:
    answer = reply("Hello.", input_tokens=1_000, cache_read_tokens=750, output_tokens=20)
    with running(tmp_path, answer) as server:
        agent = server.client().create_agent("a")
        agent.send(SECRET, "r1")
        agent.send("And now?", "r2")
        agent.send("And now?", "r2")  # answered from the ledger
        values = metrics(server)
        assert values["nexus_model_calls_total", "gpt-4o"] == 2
        tokens = {
            kind: values["nexus_model_tokens_total", kind, "gpt-4o"] for kind in ("input", "cache_read", "output")
        }
        assert tokens == {"input": 500, "cache_read": 1_500, "output": 40}
        assert values["nexus_prompt_cache_share", "gpt-4o"] == 0.75
        assert values["nexus_model_cost_usd_total", "gpt-4o"] == pytest.approx(0.0035_25)
        assert SECRET not in server.http("GET", "/metrics")[2].decode()


def test_failed_tries_are_counted_by_kind(tmp_path: Path) -> None:
    with running(tmp_path, fail(529, "overloaded"), reply("Hello."), fail(401, "wrong key")) as server:
        agent = server.client().create_agent("a")
        agent.send("Hi")
        with pytest.raises(ServerCallFailed):
            agent.send("Hi again")
        values = metrics(server)
    errors = {key[1]: value for key, value in values.items() if key[0] == "nexus_model_errors_total"}
    assert errors == {"overloaded": 1, "auth": 1}


def test_own_loop_is_counted_once_for_a_repeated_record(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    answer: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}], "usage": usage}
    with running(tmp_path) as server:
        agent = server.client().create_agent("a")
        agent.begin("Hi")
        body = agent.assemble()
        for _ in range(2):
            agent.record(answer, body.context_id)
        listed = agent.mirror([{"role": "user", "content": "Hi"}])
        for _ in range(2):
            agent.record(answer, listed.context_id)
        values = metrics(server)
    assert values["nexus_model_calls_total", "gpt-4o"] == 2
    assert values["nexus_model_tokens_total", "output", "gpt-4o"] == 14


def test_cuts_and_compactions_are_counted(tmp_path: Path) -> None:
    with running(tmp_path, reply("word " * 300)) as server:
        agent = server.client().create_agent("a", budget=2_000)
        for _ in range(12):
            agent.send("word " * 100)
        values = metrics(server)
    compactions = sum(value for key, value in values.items() if key[0] == "nexus_compactions_total")
    cuts = sum(value for key, value in values.items() if key[0] == "nexus_cuts_total")
    assert compactions + cuts > 0, values


def test_tenant_sees_the_models_of_its_own_agents_only(tmp_path: Path) -> None:
    with running(tmp_path, tokens={TOKEN: "one", f"{TOKEN}-2": "two"}) as server:
        server.client().create_agent("a", model="gpt-4o").send("Hi")
        assert metrics(server)["nexus_model_calls_total", "gpt-4o"] == 1
        page = server.http("GET", "/metrics", None, {"Authorization": f"Bearer {TOKEN}-2"})[2].decode()
        assert 'tenant="one"' not in page and "nexus_model_calls_total{" not in page


def test_names_of_models_are_bounded_and_printable() -> None:
    counts = ModelCounts()
    for number in range(MAX_MODELS + 10):
        counts.add_reply("t", f"model \ud800 \n {number}", TokenUsage(1), None)
    names = {labels[0] for labels in counts.of("t", "calls")}
    assert len(names) == MAX_MODELS + 1 and OTHER in names
    assert all(name.isascii() for name in names)


def test_server_is_ready_when_the_first_call_is_quick(tmp_path: Path) -> None:
    with process(tmp_path, "--model", "gpt-4o", OPENAI_API_KEY="sk-test") as server:
        while (answer := server.get("/ready"))[0] != 200:
            assert answer[0] == 503 and server.get("/health")[0] == 200
            time.sleep(0.01)
        maps = Path(f"/proc/{server.process.pid}/maps")
        imported = maps.read_text("utf-8") if maps.exists() else "pydantic_core"
        assert re.search("pydantic_core", imported), "the provider's package is imported"
