"""What a reader of foreign sessions returns: a transcript, as the steps that would have been appended at the time.

A step is one append to the ledger. It consists of pieces, one per line (or item) of the source, each with a key that
depends on nothing but that piece. Files grow and are read again: whoever imports them asks each step for what is
`without` the keys already known, so a piece that came later becomes a step of its own, under its message's id.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.types.message import Message
from nexus.types.request import TokenUsage

StepKind: TypeAlias = Literal["messages", "clear", "compaction"]

NOT_TYPED = frozenset({"hook", "interrupt"})
"""Sources of user messages that nobody typed: they continue the exchange that they stand in."""


class Problem(Struct, frozen=True):
    """Something in the file that could not be taken as it stood. `line` counts from 1; `kind` groups equal problems."""

    line: int
    kind: str
    text: str


class Piece(Struct, frozen=True):
    """One line or item of the source: its key and the messages (or parts of a message) that it holds."""

    key: str
    messages: tuple[Message, ...] = ()


class Step(Struct, frozen=True):
    """One append: messages, a clearing of the conversation, or a compaction (whose summary is not a message).

    `usage` is what the provider reported for the whole model call, so it belongs to the message, not to each piece.
    `facts` is what else the source says of this append; it is kept in the entry's body.
    `trigger` is `context_limit`, `manual` or empty; `kept_from` is the key of the first message that a compaction kept
    as it was (empty: none). `opens_turn` says that an exchange begins here: it depends only on what stands before, so
    it stays the same when the file grows. `closes_turn` says that the exchange is known to be over after this step.
    """

    kind: StepKind = "messages"
    pieces: tuple[Piece, ...] = ()
    at_ms: int = 0
    usage: TokenUsage | None = None
    stop_reason: str = ""
    summary: str = ""
    trigger: str = ""
    tokens_before: int = 0
    kept_from: str = ""
    opens_turn: bool = False
    closes_turn: bool = False
    facts: dict[str, Any] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all pieces, in order."""
        return tuple(piece.key for piece in self.pieces)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The step's messages, pieces of one message (same role and id) joined in order."""
        joined: list[Message] = []
        for message in (message for piece in self.pieces for message in piece.messages):
            last = joined[-1] if joined else None
            if last and message.id and (last.id, last.role) == (message.id, message.role):
                meta = _joined(last.meta, message.meta, len(last.parts))
                joined[-1] = replace(last, parts=last.parts + message.parts, meta=meta)
            else:
                joined.append(message)
        return tuple(joined)

    def without(self, known: Container[str]) -> Step | None:
        """The step with its unknown pieces only; None when nothing is new. A compaction is known as a whole."""
        new = tuple(piece for piece in self.pieces if piece.key not in known)
        if len(new) == len(self.pieces):
            return self
        if not new or self.kind != "messages":
            return None
        return replace(self, pieces=new, opens_turn=False)


class Fork(Struct, frozen=True):
    """A branch that was left: the user went back and went on differently.

    `after` is the key it follows; empty if it begins the conversation anew. That key stands on the main path, or, when
    `branch` is not -1, in the fork of that number, which always comes before this one.
    """

    after: str
    steps: tuple[Step, ...]
    branch: int = -1


class Transcript(Struct, frozen=True):
    """One conversation of a file. Side chains are the conversations of its sub-agents, by the agent's id.

    Nothing is dropped silently: `sum(counted.values()) + message_lines == lines`, where `counted` has the lines that
    hold no message, by kind, and `left_out` says which fields of message lines were not taken over, and how often.
    `meta` is JSON text of what else the file says about the conversation. `unique_keys` says that a key stands for one
    message anywhere, so that a file that begins with another one's messages is known as a copy that went on.
    """

    format: str
    source_id: str
    title: str = ""
    steps: tuple[Step, ...] = ()
    forks: tuple[Fork, ...] = ()
    sidechains: tuple[Transcript, ...] = ()
    counted: dict[str, int] = {}
    omitted: dict[str, int] = {}
    problems: tuple[Problem, ...] = ()
    lines: int = 0
    message_lines: int = 0
    model: str = ""
    cwd: str = ""
    meta: str = ""
    unique_keys: bool = False

    def all_steps(self) -> Iterator[Step]:
        """Every step: the main path, then the forks, then the side chains."""
        yield from self.steps
        for fork in self.forks:
            yield from fork.steps
        for sidechain in self.sidechains:
            yield from sidechain.all_steps()

    def all_keys(self) -> tuple[str, ...]:
        """The keys of all pieces of all steps."""
        return tuple(key for step in self.all_steps() for key in step.keys)


def group_into_turns(steps: Sequence[Step], *, ended: bool = False) -> tuple[Step, ...]:
    """The steps of one path with `opens_turn` and `closes_turn` set.

    A user's message opens a turn unless it follows another one that was not answered yet, or nobody typed it. A turn
    is closed by what opens the next one or clears the conversation; the last one only when `ended` says that nothing
    more can come, and it ends with an answer without calls.
    """
    marked: list[Step] = []
    unanswered = under_way = False
    for step in steps:
        opens = not unanswered and _typed(step)
        if (opens or step.kind == "clear") and under_way:
            marked[-1] = replace(marked[-1], closes_turn=True)
            under_way = False
        marked.append(replace(step, opens_turn=opens))
        unanswered = _role(step) == "user" and (opens or unanswered)
        under_way = under_way or _role(step) in ("user", "assistant", "tool")
    if under_way and ended and _answers(marked[-1]):
        marked[-1] = replace(marked[-1], closes_turn=True)
    return tuple(marked)


def _first(step: Step) -> Message | None:
    return next((message for piece in step.pieces for message in piece.messages), None)


def _role(step: Step) -> str:
    first = _first(step)
    return first.role if first else ""


def _typed(step: Step) -> bool:
    first = _first(step)
    return first is not None and first.role == "user" and first.source not in NOT_TYPED


def _answers(step: Step) -> bool:
    said = [message for piece in step.pieces for message in piece.messages]
    return bool(said) and said[-1].role == "assistant" and not any(True for m in said for _ in m.calls())


def _joined(first: str, second: str, parts_before: int) -> str:
    """Two `meta` texts as one: what the later piece says wins; notes on its parts (`blocks`) move with them."""
    if first == second or not second:
        return first
    one: dict[str, Any] = json.loads(first) if first else {}
    two: dict[str, Any] = json.loads(second)
    blocks: dict[str, Any] = two.pop("blocks", {})
    moved = {str(int(index) + parts_before): note for index, note in blocks.items()}
    both = {**one, **two, **({"blocks": {**one.get("blocks", {}), **moved}} if moved else {})}
    return json.dumps(both, ensure_ascii=False, separators=(",", ":"))
