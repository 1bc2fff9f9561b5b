"""A process that talks is killed (`kill -9`) between a user's message and the recorded reply; no message may be lost.

It talks by turns (`nx.begin`), by `nexus.call`, or by lists (`nx.mirror`). After each kill another process opens the
ledger, checks what must be there, and sends the last message again: it must be there once, and get its reply.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import nexus
import nexus.engine
import nexus.engine.overflow_recovery
import nexus.summarization
import nexus.workspace.plugins.load
from nexus.tokens.counter import get_counter
from nexus.tokens.model import resolve
from torture.figures import Figures, Progress, require, shares
from torture.processes import Numbers, Signal, answer, killed, started

NAME = "kill_turns"
ROUNDS = 1_000

BEGUN, DURABLE, RECORDED, CELLS = range(4)
"""Cells: the message that was sent last, that was stored before its call last, whose reply was stored last."""

WAYS = ("turns", "call", "mirror")
LONGEST_SECONDS = 0.1
MODEL_SECONDS = 0.02
"""How long the model of each call takes, on average: most kills hit it."""

ROUNDS_OF_A_FILE = 50
SESSION = "talk"

WAITING = "kills between a stored message and its reply"
INSIDE = "kills while a message was being stored"
MESSAGES = "messages stored before their call"
COUNTED = (MESSAGES, "replies stored", "messages sent again after a kill, each there once", WAITING, INSIDE)


def run(rounds: int, seed: int, folder: Path, progress: Progress) -> Figures:
    """Kills so many processes. Raises AssertionError with what was lost or doubled."""
    get_counter().count(resolve("gpt-4o").name)  # loaded once, before the processes are forked
    dice, cells = random.Random(seed), Numbers(CELLS)
    counts = Counter[str](dict.fromkeys(COUNTED, 0))
    for number in range(rounds):
        path, way = folder / f"{number // ROUNDS_OF_A_FILE}.db", WAYS[number % len(WAYS)]
        session = f"{SESSION}{number}"
        cells.clear()
        ready = Signal()
        pid = started(_talk, path, way, session, cells, ready, dice.random())
        require(ready.wait(), "the process that should talk ended by itself; what it said stands above")
        time.sleep(dice.random() * LONGEST_SECONDS)
        killed(pid)
        state = tuple(cells[cell] for cell in range(CELLS))
        answer(check, path, way, session, state)
        counts[MESSAGES] += state[DURABLE]
        counts["replies stored"] += state[RECORDED]
        counts["messages sent again after a kill, each there once"] += bool(state[BEGUN])
        counts[WAITING] += state[DURABLE] > state[RECORDED]
        counts[INSIDE] += state[BEGUN] > state[DURABLE]
        if number % ROUNDS_OF_A_FILE == ROUNDS_OF_A_FILE - 1:
            for old in folder.glob(f"{path.name}*"):
                old.unlink()
        progress(number + 1, rounds)
    return Figures(NAME, rounds, shares(counts, (WAITING, INSIDE), rounds) | {"messages lost or doubled": 0})


def message(number: int) -> str:
    """The text of a message."""
    return f"question {number}"


def reply(number: int) -> str:
    """The text of its reply."""
    return f"answer {number}"


def conversation(numbers: int) -> list[dict[str, str]]:
    """A client's list of so many messages with their replies."""
    pairs = ((("user", message(n)), ("assistant", reply(n))) for n in range(1, numbers + 1))
    return [{"role": role, "content": text} for pair in pairs for role, text in pair]


def result(number: int) -> nexus.AgentResult:
    """The model's reply."""
    return nexus.AgentResult((nexus.assistant(reply(number)),))


def send(nx: nexus.Engine, way: str, session: str, number: int, cells: Numbers | None, pause: float) -> None:
    """Send one message and store its reply, by one of the ways; `cells` get how far it came."""

    def called() -> nexus.AgentResult:
        if cells is not None:
            cells[DURABLE] = number
        time.sleep(pause)
        return result(number)

    event = nexus.Event((nexus.Text(message(number)),), id=f"{session}-{number}")
    match way:
        case "turns":
            turn = nx.begin(event, session=session)
            if turn.is_open:
                turn.assemble()
                turn.record(called())
        case "call":
            nexus.call(nx, event, lambda _ctx: called(), session=session)
        case _:
            # A list is stored with its reply: the client has it until then.
            items = [*conversation(number - 1), {"role": "user", "content": message(number)}]
            ctx = nx.mirror(items, scope=session)
            time.sleep(pause)
            nx.record(ctx, result(number))
            if cells is not None:
                cells[DURABLE] = number


def _talk(path: Path, way: str, session: str, cells: Numbers, ready: Signal, speed: float) -> None:
    nx = nexus.open(ledger=path, model="gpt-4o")
    nx.assemble("loaded before the first message")
    ready.give()
    number = 0
    while True:
        number += 1
        cells[BEGUN] = number
        send(nx, way, session, number, cells, 2 * MODEL_SECONDS * speed)
        cells[RECORDED] = number


def check(path: Path, way: str, session: str, state: tuple[int, ...]) -> None:
    """Check a session after the kill, send its last message again, and check that it is complete."""
    begun, durable, recorded, *_ = state
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        texts = _texts(nx, way, session)
        for number in range(1, begun + 1):
            times = texts.count(message(number))
            require(
                times == 1 or (times == 0 and number > durable), f"message {number} of {session} is there {times} times"
            )
            times = texts.count(reply(number))
            require(
                times == 1 or (times == 0 and number > recorded), f"reply {number} of {session} is there {times} times"
            )
        if not begun:
            return
        send(nx, way, session, begun, None, 0)
        wanted = [text for number in range(1, begun + 1) for text in (message(number), reply(number))]
        found = _texts(nx, way, session)
        require(found == wanted, f"{session} ({way}) has {found[-4:]} at its end after {begun} messages")


def _texts(nx: nexus.Engine, way: str, session: str) -> list[str]:
    labels = [one.label for one in nx.sessions() if one.label.partition("~")[0] == session]
    require(len(labels) < 2, f"{session} ({way}) became {len(labels)} sessions")
    return [text.text() for label in labels for text in nx.history(label)]
