"""CPU time that the openai package takes to send an assembled context, with its own conversion and with `fast=True`.

A scripted server in this process answers at once. Timed is the thread of the caller, from the context to the reply.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import openai

import nexus
from benchmarks.report import Cell, Outcome, Table
from nexus.testing.model_server import model_server, reply

COMMAND = "python -m benchmarks sending"
ROUNDS = 7
LENGTHS = (100, 1_000)
MODELS = {"chat completions": "gpt-4o", "Responses": "gpt-5"}


def conversation(messages: int) -> list[dict[str, Any]]:
    """Turns of a question, a call, its result and an answer, and a last question."""
    items: list[dict[str, Any]] = []
    for number in range(messages // 4):
        function = {"name": "look", "arguments": f'{{"at": {number}}}'}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        items += [
            {"role": "user", "content": f"What is at {number}? " + "Please look well. " * 5},
            {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "A row of the table. " * 8},
            {"role": "assistant", "content": "It is a row."},
        ]
    return [*items, {"role": "user", "content": "And now?"}]


def run() -> Outcome:
    """Both wires and lengths."""
    rows: list[tuple[Cell, ...]] = []
    with model_server(reply("Hello.")) as server, openai.OpenAI(base_url=server.openai_url, api_key="none") as client:
        for wire, model in MODELS.items():
            create: Any = client.responses.create if wire == "Responses" else client.chat.completions.create
            with nexus.open(ledger=":memory:", model=model) as nx:
                for length in LENGTHS:
                    ctx = nx.mirror(conversation(length))
                    write = ctx.to_responses if wire == "Responses" else ctx.to_openai
                    plain, fast = (_spent_ms(create, write, is_fast=is_fast) for is_fast in (False, True))
                    rows.append((wire, len(ctx.messages), round(plain, 1), round(fast, 1), round(plain / fast, 1)))
    columns = ("API", "messages", "converted, ms", "`fast=True`, ms", "times")
    data = f"made conversations; medians of {ROUNDS} calls; openai {openai.__version__}"
    return Outcome((Table("Sending through the openai package", COMMAND, data, columns, tuple(rows)),))


def _spent_ms(create: Callable[..., Any], write: Callable[..., dict[str, Any]], *, is_fast: bool) -> float:
    """Return the median CPU time of the caller's thread."""
    spent: list[float] = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        create(**write(fast=is_fast))
        spent.append((time.thread_time() - begun) * 1_000)
    return median(spent)
