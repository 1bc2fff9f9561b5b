"""Conversations with a scripted model, and a server of it in another process, whose first tries fail in all the ways that streams fail.

What the model answers follows from the user's newest message alone, so a session's whole history is known beforehand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from random import Random

from msgspec.structs import replace

from nexus.testing.model_server import (
    ModelRequest,
    Response,
    Step,
    break_stream,
    disconnect,
    fail,
    model_server,
    overflow,
    reply,
)
from nexus.types.message import Message, Text, ToolCall

MODEL, SMALL_MODEL = "gpt-4o", "gpt-4o-mini"
"""The model of most sessions, and that of sessions with an overflow: a provider's limit is remembered for its model."""

OVERFLOW_TURN, _LONG = 1, 20
"""The turn whose prompt is rejected, and how much longer the records before it are."""
_RECORD = "The planner reads the index, the worker writes the report, and the reviewer asks for figures. " * 5


def look_up(topic: str) -> str:
    """Return the record of a topic.

    Args:
        topic: Number of a session, and of its turn.
    """
    number, turn = map(int, topic.split())
    return f"Record of {topic}. {_RECORD * (_LONG if model_of(number) == SMALL_MODEL and turn < OVERFLOW_TURN else 1)}"


def session_name(number: int) -> str:
    """Return the label of a session."""
    return f"session-{number}"


def model_of(number: int) -> str:
    """Return the model of a session."""
    return SMALL_MODEL if number % 10 == 9 else MODEL


def question(number: int, turn: int) -> str:
    """Return the user's message of a turn."""
    return f"{number} {turn}: look it up."


def conversation(number: int, turns: int) -> list[tuple[str, str]]:
    """Return a session's whole history: role and text of each message."""
    messages: list[tuple[str, str]] = []
    for turn in range(turns):
        topic = f"{number} {turn}"
        messages += [
            ("user", question(number, turn)),
            ("assistant", f"Looking {topic} up."),
            ("tool", look_up(topic)),
            ("assistant", f"This is {topic}."),
        ]
    return messages


def role_and_text(message: Message) -> tuple[str, str]:
    """Return a message as `conversation` has it."""
    texts = [part.text for result in message.results() for part in result.content if isinstance(part, Text)]
    return message.role, "".join(texts) or message.text()


class _ScriptedModel:
    """The script. With `faults`, the first try of some calls fails; the next one succeeds."""

    def __init__(self, delay_s: float, *, faults: bool) -> None:
        self._delay_s, self._faults = delay_s, faults
        self._tried: set[tuple[int, int, bool]] = set()
        self._random = Random(0)

    def __call__(self, request: ModelRequest) -> Response:
        messages = request.body["messages"]
        asked = next(message for message in reversed(messages) if message["role"] == "user")
        content = asked["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        number, turn = map(int, text[: text.rindex(":")].split()[-2:])
        has_result = messages[-1]["role"] == "tool"
        topic = f"{number} {turn}"
        if has_result:
            step = reply(f"This is {topic}.")
        else:
            call = ToolCall(f"call_{number}_{turn}", "look_up", json.dumps({"topic": topic}))
            step = reply(f"Looking {topic} up.", call)
        key = (number, turn, has_result)
        if self._faults and key not in self._tried:
            self._tried.add(key)
            step = _faulty(step, number, turn, has_result=has_result)
        return replace(step(request), delay_s=self._delay_s * self._random.uniform(0.5, 1.5))


def _faulty(step: Step, number: int, turn: int, *, has_result: bool) -> Step:
    """Return the first try of a call: for some calls a failure of their own."""
    if model_of(number) == SMALL_MODEL and turn == OVERFLOW_TURN and not has_result:
        return overflow(100_000, 130_000)
    kind = (number + turn) % 10
    if kind == 1:
        return fail(429, "slow down")
    if kind == 2 and has_result:
        return fail(500, "internal error")
    if kind == 3:
        return disconnect()
    if kind == 4:
        return break_stream(step, "disconnect", after=2)
    if kind == 5 and has_result:
        return break_stream(step, "malformed", after=1)
    if kind == 6:
        return break_stream(step, "error", after=1)
    if kind == 7 and not has_result:
        return break_stream(step, "end", after=2)
    return step


@contextmanager
def served(delay_s: float = 0.0, *, faults: bool = False) -> Generator[str]:
    """Run the server in a process of its own; yield its address.

    Args:
        delay_s: Mean seconds until a reply; each takes between half and one and a half of it.
        faults: Let the first try of some calls fail.
    """
    command = [sys.executable, "-m", __name__, str(delay_s), str(int(faults))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main() -> None:
    """Serve until the standard input ends."""
    with model_server(_ScriptedModel(float(sys.argv[1]), faults=sys.argv[2] == "1")) as server:
        print(server.openai_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
