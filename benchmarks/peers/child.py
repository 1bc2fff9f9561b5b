"""One peer's work in the peers' environment: reads a job from standard input, writes lines of JSON to standard output.

The process limits its own CPU time and memory before it imports the peer: whoever hangs or grows ends here, and the
parent reports it. What a peer prints goes to standard error.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections import Counter
from typing import Any, TextIO

import msgspec
from msgspec import Struct

from benchmarks.bodies import Body, Remembered, pieces_of, serialised, tokens_of
from benchmarks.peers.course import MODEL, Course, Exchange, Messages
from benchmarks.peers.cpu import cpu_ms
from benchmarks.peers.job import Job, Replayed, Took
from benchmarks.peers.registry import NEXUS
from benchmarks.peers.side import Setting, Side, Usage, side_of
from benchmarks.sessions import Call
from benchmarks.talk import QUESTION, TURN_MESSAGES, Talk
from nexus.providers import openai
from nexus.types.message import Text, assistant
from nexus.types.request import Event

SYSTEM = "You are brief."


class _Numbers:
    """Messages by number: equal ones once."""

    def __init__(self) -> None:
        self.messages: Messages = []
        self._known: dict[bytes, int] = {}

    def of(self, messages: Messages) -> tuple[int, ...]:
        """The numbers of these messages."""
        return tuple(self._number(message) for message in messages)

    def _number(self, message: dict[str, Any]) -> int:
        key = msgspec.json.encode(message)
        if key not in self._known:
            self._known[key] = len(self.messages)
            self.messages.append(message)
        return self._known[key]


def replay(name: str, course: Course, budget: int) -> Replayed:
    """The bodies of all calls of a course. An error of the peer's ends the call, not the course."""
    counter, numbers = Remembered(), _Numbers()
    side = side_of(name)(Setting(budget, course.system, course.tools))
    bodies: list[tuple[int, ...] | None] = []
    others: list[dict[str, Any] | None] = []
    errors: Counter[str] = Counter()
    for exchange in course.exchanges:
        side.hear(exchange)
        usage = Usage()
        try:
            made = side.step()
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is counted and told
            errors[type(error).__name__] += 1
            bodies.append(None)
            others.append(None)
        else:
            body: Body = {"model": MODEL, "tools": course.tools, "messages": side.shown(made)}
            answer = sum(counter.count(serialised(message)) for message in exchange.reply)
            usage = Usage(tokens_of(pieces_of(body), counter), answer)
            bodies.append(numbers.of(body["messages"]))
            other = side.anthropic(made)
            others.append(other and {**other, "messages": numbers.of(other["messages"])})
        side.say(exchange, usage)
    return Replayed(course.name, numbers.messages, tuple(bodies), tuple(others), side.summaries, dict(errors))


def took(name: str, length: int, rounds: int, out: TextIO) -> None:
    """Writes the times of each round as soon as it is over."""
    if name == NEXUS:
        from benchmarks.peers.nexus_side import times

        for _ in range(rounds):
            _write(out, Took(*times(length)))
        return
    exchanges, tokens = _talk(length)
    make = side_of(name)
    for _ in range(rounds):
        side = make(Setting(tokens // 2, SYSTEM, []))
        side.load(exchanges)
        first = _timed(side, "first")
        _write(out, Took(first, _timed(side, "next")))


def _timed(side: Side, what: str) -> float:
    asked = Call(Event(content=(Text(f"{QUESTION} ({what})"),)), (assistant("Nothing."),))
    exchange = Exchange([{"role": "user", "content": f"{QUESTION} ({what})"}], _sent(asked), asked)
    side.hear(exchange)
    gc.collect()
    _, spent = cpu_ms(side.step)
    side.say(exchange, Usage())
    return spent


def _talk(length: int) -> tuple[list[Exchange], int]:
    """A session of so many messages as exchanges, and its tokens."""
    talk = Talk()
    for _ in range(length // TURN_MESSAGES):
        talk.turn()
    exchanges: list[Exchange] = []
    for at in range(0, len(talk.messages), 2):
        heard, said = talk.messages[at : at + 2]
        event = Event(results=(heard,)) if heard.role == "tool" else Event(content=heard.parts)
        call = Call(event, (said,))
        exchanges.append(Exchange(openai.fragment(heard), _sent(call), call))
    sizes = (serialised(message) for exchange in exchanges for message in (*exchange.event, *exchange.reply))
    return exchanges, sum(talk.counter.count(text) for text in sizes)


def _sent(call: Call) -> Messages:
    return [sent for message in call.reply for sent in openai.fragment(message)]


def _write(out: TextIO, value: Struct) -> None:
    out.write(msgspec.json.encode(value).decode() + "\n")
    out.flush()


def main() -> None:
    """Does the job of standard input."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_s, job.cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (job.memory_bytes, job.memory_bytes))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for course in job.courses:
            _write(out, replay(job.peer, course, job.budget))
        if job.length:
            took(job.peer, job.length, job.rounds, out)


if __name__ == "__main__":
    main()
