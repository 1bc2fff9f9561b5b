"""What a peer's bodies are worth: judged, counted and compared with the ones before, in the same way for everybody."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from benchmarks.bodies import Body, Pieces, Remembered, extends, leading_run, serialised, tokens_of
from benchmarks.peers.course import MODEL, Course, Messages, said_by_user
from benchmarks.peers.job import Replayed
from benchmarks.peers.judging import anthropic_body, anthropic_takes, openai_takes
from benchmarks.peers.registry import Counted
from benchmarks.peers.side import text_of


class Sums(Struct, frozen=True):
    """What is added up over the calls of courses.

    All from `sent` to `event` count calls from the first one on at which the never-cut body exceeds the budget, `prompt`
    their tokens. `whole_prompt`, `cached`, `breaks` and `followed` are over all calls. `raised` calls sent nothing.
    """

    sent: int = 0
    openai: int = 0
    anthropic: int = 0
    over: int = 0
    over_own: int = 0
    first: int = 0
    latest: int = 0
    event: int = 0
    prompt: int = 0
    raised: int = 0
    whole_prompt: int = 0
    cached: int = 0
    breaks: int = 0
    followed: int = 0
    summaries: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


def whole_tokens(course: Course, counter: Remembered) -> list[int]:
    """The tokens of the never-cut body at each call."""
    head = counter.count(head_of(course)) + counter.count(_piece({"role": "system", "content": course.system}))
    sizes: list[int] = []
    before: Messages = []
    for exchange in course.exchanges:
        sizes.append(sum(counter.count(_piece(message)) for message in (*before, *exchange.event)))
        before = exchange.reply
    return list(accumulate(sizes, initial=head))[1:]


def head_of(course: Course) -> str:
    """All of a body that stands beside its messages, as text."""
    return serialised({"model": MODEL, "tools": course.tools})


def figures(course: Course, replayed: Replayed, budget: int, counts: Counted, counter: Remembered) -> Sums:
    """The sums of one peer in one course. `counts` says what its own budget counts."""
    pieces = [_piece(message) for message in replayed.messages]
    reader = _Reader(course, replayed, budget, counts, counter)
    sums = Sums(summaries=replayed.summaries)
    before: Pieces = ()
    for at, (whole, numbers) in enumerate(zip(whole_tokens(course, counter), replayed.bodies, strict=True)):
        reader.hear(at)
        if numbers is None:
            sums += Sums(raised=1)
            continue
        now = (head_of(course), *(pieces[number] for number in numbers))
        prompt = tokens_of(now, counter)
        if before:
            sums += Sums(breaks=int(not extends(before, now)), followed=1)
        sums += Sums(whole_prompt=prompt, cached=leading_run(before, now, counter))
        before = now
        reader.full = reader.full or whole > budget
        if reader.full:
            sums += reader.judged(at, numbers, now, prompt)
    return sums


class _Reader:
    """What has been said so far in a course, and what a body has of it."""

    full = False

    def __init__(self, course: Course, replayed: Replayed, budget: int, counts: Counted, counter: Remembered) -> None:
        self._course, self._replayed = course, replayed
        self._budget, self._counts, self._counter = budget, counts, counter
        self._first = self._latest = ""

    def hear(self, at: int) -> None:
        """Takes what the user said before a call."""
        said = said_by_user(self._course.exchanges[at].source)
        self._first = self._first or said
        self._latest = said or self._latest

    def judged(self, at: int, numbers: tuple[int, ...], pieces: Pieces, prompt: int) -> Sums:
        """The sums of one body."""
        messages = [self._replayed.messages[number] for number in numbers]
        body: Body = {"model": MODEL, "tools": self._course.tools, "messages": messages}
        texts = [text_of(message.get("content")) for message in messages]
        return Sums(
            sent=1,
            openai=int(openai_takes(body)),
            anthropic=int(anthropic_takes(self._own_anthropic(at) or anthropic_body(body))),
            over=int(prompt > self._budget),
            over_own=int(self._counted(messages, pieces) > self._budget),
            first=int(any(self._first in text for text in texts)),
            latest=int(any(self._latest in text for text in texts)),
            event=int(self._has_event(at, messages)),
            prompt=prompt,
        )

    def _own_anthropic(self, at: int) -> Body | None:
        """The body in Anthropic's form of a peer that makes one."""
        made = self._replayed.anthropic[at]
        if made is None:
            return None
        numbers: list[int] = made["messages"]
        return {**made, "messages": [self._replayed.messages[number] for number in numbers]}

    def _counted(self, messages: Messages, pieces: Pieces) -> int:
        """The tokens of what the peer's own budget counts."""
        if self._counts == "whole request":
            return tokens_of(pieces, self._counter)
        is_counted = [self._counts == "system and messages" or message["role"] != "system" for message in messages]
        return sum(self._counter.count(piece) for piece, counted in zip(pieces[1:], is_counted, strict=True) if counted)

    def _has_event(self, at: int, messages: Messages) -> bool:
        event = [_essence(message) for message in self._course.exchanges[at].event]
        return [_essence(message) for message in messages[-len(event) :]] == event


def _essence(message: dict[str, Any]) -> tuple[str, str, str]:
    """What must be the same for a message to be shown whole, whatever the form of its content."""
    return message["role"], message.get("tool_call_id") or "", text_of(message.get("content"))


def _piece(message: dict[str, Any]) -> str:
    return f"{serialised(message)},"
