"""A made-up tool-calling session, always the same: tasks, loops of tool calls of mixed sizes, several calls at once."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from benchmarks.sessions import Call, Session
from nexus.types.message import Message, Text, ToolCall, assistant, tool
from nexus.types.request import Event

NAME = "synthetic"
CALLS = 160
SEED = 11
RESULT_CHARS = 1_500
MOST_RESULT_CHARS = 12_000
MOST_STEPS = 14

_TOOLS = ("read_file", "search", "run", "edit", "list_folder")
_WORDS = (
    "order", "basket", "price", "stock", "invoice", "queue", "index", "worker", "branch", "report", "latency", "margin",
    "cache", "retry", "engine", "schema", "prefix", "session", "deploy", "rollback", "shard", "metric", "cursor",
)  # fmt: skip


@dataclass(slots=True)
class _Maker:
    random: random.Random = field(default_factory=lambda: random.Random(SEED))
    number: int = 0

    def text(self, chars: int) -> str:
        """Words, and now and then a line of JSON, as results of tools have them."""
        pieces: list[str] = []
        size = 0
        while size < chars:
            word = self.random.choice(_WORDS)
            piece = json.dumps({word: self.random.randrange(10_000)}) if self.random.random() < 0.1 else word
            pieces.append(piece)
            size += len(piece) + 1
        return " ".join(pieces)[:chars]

    def asks(self) -> Message:
        """An assistant's message with one call, or up to three."""
        calls: list[ToolCall] = []
        for _ in range(1 if self.random.random() < 0.75 else self.random.randint(2, 3)):
            self.number += 1
            arguments = json.dumps({"path": f"src/{self.random.choice(_WORDS)}.py", "query": self.text(40)})
            calls.append(ToolCall(f"call_{self.number}", self.random.choice(_TOOLS), arguments))
        return assistant(self.text(80) if self.random.random() < 0.6 else "", *calls, model="gpt-4o")

    def answers(self, message: Message) -> tuple[Message, ...]:
        """A result for each call of the message."""
        sizes = (min(int(self.random.expovariate(1 / RESULT_CHARS)) + 20, MOST_RESULT_CHARS) for _ in message.calls())
        return tuple(
            tool(call.id, self.text(size), call.name) for call, size in zip(message.calls(), sizes, strict=True)
        )


def session(calls: int = CALLS) -> Session:
    """The session: tasks of a user, each followed by 2 to 14 steps of tools and a closing text."""
    maker = _Maker()
    made: list[Call] = []
    while len(made) < calls:
        event = Event(content=(Text(f"Task {len(made)}: {maker.text(300)}"),), at_ms=1)
        for _ in range(maker.random.randint(2, MOST_STEPS)):
            asked = maker.asks()
            made.append(Call(event, (asked,)))
            event = Event(results=maker.answers(asked), at_ms=1)
        made.append(Call(event, (assistant(maker.text(400), model="gpt-4o"),)))
    return Session(NAME, tuple(made[:calls]))
