"""Many sessions of one broker at once: CPU per turn beside the provider's package alone, loop lag, and every history.

Each turn is two calls of a model and a tool call, over HTTP from a server in another process. The package alone makes the
same calls with the same messages, so the difference is what Nexus adds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from msgspec import Struct

import nexus
from benchmarks.conversations import (
    conversation,
    look_up,
    model_of,
    question,
    role_and_text,
    served,
    session_name,
)
from benchmarks.measure import loop_lag, share_of
from benchmarks.report import Cell, Outcome, Table, Target
from nexus.agents import Agent
from nexus.broker import Broker
from nexus.models import Models, open_client

COMMAND = "python -m benchmarks agents"
SESSIONS, TURNS, MODEL_S = 200, 2, 2.0
MOST_CPU_MS, MOST_LAG_MS = 10.0, 10.0


class Run(Struct, frozen=True):
    """What one run took."""

    lags: list[float]
    seconds: float
    cpu_s: float
    """Of all threads of this process."""
    wrong: tuple[str, ...] = ()
    """Sessions whose history is not their conversation."""
    overflows: int = 0
    """Prompts that were too long, and were sent again."""


def run() -> Outcome:
    """The package alone and the broker, with a model that answers after some time; then the broker with failures."""
    with served(MODEL_S) as url:
        package = asyncio.run(run_package(url, SESSIONS, TURNS))
    with served(MODEL_S) as url:
        broker = asyncio.run(run_broker(url, SESSIONS, TURNS))
    with served(MODEL_S, faults=True) as url:
        faulty = asyncio.run(run_broker(url, SESSIONS, TURNS))
    sdk_ms, all_ms = _cpu_ms(package), _cpu_ms(broker)
    rows = (
        ("openai package alone", *_figures(package), None),
        ("broker", *_figures(broker), all_ms - sdk_ms),
        ("broker, first tries fail", *_figures(faulty), None),
    )
    notes = (
        f"{SESSIONS} sessions with {TURNS} turns each, all submitted at once; one run.",
        f"A turn: two streamed calls of a model, which answers after {MODEL_S / 2:g} to {MODEL_S * 1.5:g} s, and a tool call.",
        "Added by Nexus: CPU of all threads, less that of the package alone for the same calls.",
        "Lag: how much later than asked a task wakes that sleeps for 1 ms.",
        "Failures: 429, 500, closed connections, broken, malformed and unfinished streams, errors within streams, and",
        " prompts that are too long. Every session's history is then compared with its conversation.",
    )
    header = ("what", "turns/s", "CPU ms/turn", "lag p50 ms", "lag p99 ms", "lag max ms", "added by Nexus ms/turn")
    table = Table("Many sessions of one broker at once", COMMAND, "none", header, rows, notes)
    lag, wrong = share_of(broker.lags, 0.99), len(broker.wrong) + len(faulty.wrong)
    return Outcome(
        (table,),
        (
            Target(
                "CPU per turn that Nexus adds",
                f"under {MOST_CPU_MS:.0f} ms",
                f"{all_ms - sdk_ms:.1f} ms",
                all_ms - sdk_ms < MOST_CPU_MS,
            ),
            Target(
                f"lag of the loop with {SESSIONS} sessions, p99",
                f"under {MOST_LAG_MS:.0f} ms",
                f"{lag:.1f} ms",
                lag < MOST_LAG_MS,
            ),
            Target("sessions with a wrong history", "0", str(wrong), not wrong),
        ),
    )


async def run_broker(url: str, sessions: int, turns: int) -> Run:
    """Hold all conversations through a broker, and compare their histories in the ledger with them."""
    with tempfile.TemporaryDirectory() as folder:
        async with nexus.open_async(ledger=Path(folder) / "ledger.db", model=model_of(0)) as nx:
            await nx.warm()
            models = Models({"openai": open_client(base_url=url)})
            agent = Agent(nx, models, tools=[look_up], builtin=False)
            async with models, Broker(agent, at_once=sessions) as broker:
                await broker.submit(question(sessions, 0), session=session_name(sessions))
                await broker.join()  # imports

                async def talk(number: int) -> None:
                    for turn in range(turns):
                        row = await broker.submit(
                            question(number, turn), session=session_name(number), model=model_of(number)
                        )
                        result = await broker.result(row.id)
                        assert result.event.state == "done", result.event.reason

                cpu_s = time.process_time()
                lags, seconds = await loop_lag(lambda: asyncio.gather(*map(talk, range(sessions))))
                cpu_s = time.process_time() - cpu_s
            wrong: list[str] = []
            for number in range(sessions):
                history = [role_and_text(message) for message in await nx.history(session_name(number))]
                if history != conversation(number, turns):
                    wrong.append(session_name(number))
            return Run(lags, seconds, cpu_s, tuple(wrong), sum(nx.engine.limits.recoveries.values()))


async def run_package(url: str, sessions: int, turns: int) -> Run:
    """Make the same calls with the provider's package alone."""
    import openai

    tool = {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Return the record of a topic.",
            "parameters": {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]},
        },
    }
    async with openai.AsyncOpenAI(base_url=url, api_key="none", timeout=None, max_retries=0) as client:

        async def call(number: int, messages: list[dict[str, object]]) -> None:
            stream = await client.chat.completions.create(
                model=model_of(number), messages=messages, tools=[tool], stream=True,  # pyright: ignore[reportArgumentType]
                stream_options={"include_usage": True},
            )  # fmt: skip
            async with stream:
                async for _ in stream:
                    pass

        async def talk(number: int) -> None:
            messages: list[dict[str, object]] = []
            for turn in range(turns):
                steps = conversation(number, turn + 1)[-4:]
                call_id, topic = f"call_{number}_{turn}", f'{{"topic": "{number} {turn}"}}'
                asked = {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": topic}}
                messages.append({"role": "user", "content": steps[0][1]})
                await call(number, messages)
                messages.append({"role": "assistant", "content": steps[1][1], "tool_calls": [asked]})
                messages.append({"role": "tool", "tool_call_id": call_id, "content": steps[2][1]})
                await call(number, messages)
                messages.append({"role": "assistant", "content": steps[3][1]})

        await call(0, [{"role": "user", "content": question(sessions, 0)}])  # imports
        cpu_s = time.process_time()
        lags, seconds = await loop_lag(lambda: asyncio.gather(*map(talk, range(sessions))))
        return Run(lags, seconds, time.process_time() - cpu_s)


def _cpu_ms(run: Run) -> float:
    return 1000 * run.cpu_s / (SESSIONS * TURNS)


def _figures(run: Run) -> tuple[Cell, ...]:
    return SESSIONS * TURNS / run.seconds, _cpu_ms(run), *(share_of(run.lags, share) for share in (0.5, 0.99, 1.0))
