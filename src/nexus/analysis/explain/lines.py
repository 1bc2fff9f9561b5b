"""The lines of an explanation, as values, and how a message or a block is told in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.context import TokenLine
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Image, Message, Thinking, ToolCall, ToolResult

State: TypeAlias = Literal["included", "truncated", "summarized", "omitted", "not applicable"]
Kind: TypeAlias = Literal["block", "framing", "tool", "summary", "marker", "message", "image", "supplied", "event"]

EXCERPT_CHARS = 120
"""What a line shows of a text."""


class ExplainedLine(Struct, frozen=True, omit_defaults=True):
    """One thing and what became of it.

    `tokens` is what it takes in this call, `whole` what all of it would take, in the provider's tokens. `place` is that
    of a message in the ledger, `origin` where a block comes from, `text` how it begins.
    """

    state: State
    kind: Kind
    slot: str
    name: str
    reason: str
    tokens: int
    full_tokens: int
    place: MessageRef | None = None
    source: str = ""
    text: str = ""


class Explanation(Struct, frozen=True):
    """A call explained. `call` says which; `lines` are in the order of system slot, tools, history, message.

    `used` is the sum of the lines' tokens, of `available`. `warnings` are those of the context.
    """

    session: str
    call: str
    model: str
    provider: str
    available: int
    used: int
    lines: tuple[ExplainedLine, ...]
    warnings: tuple[str, ...] = ()

    def tokens(self, state: State) -> int:
        """What all things of a state would take if they were shown whole."""
        return sum(line.full_tokens for line in self.lines if line.state == state)


def share(total: int, weights: Sequence[int]) -> list[int]:
    """A number as whole parts in proportion to the weights (evenly where all are 0); the parts add up to it."""
    whole = sum(weights)
    weights = weights if whole else [1] * len(weights)
    whole = whole or len(weights)
    parts: list[int] = []
    so_far = given = 0
    for weight in weights:
        so_far += weight
        parts.append(total * so_far // whole - given)
        given += parts[-1]
    return parts


def excerpt(message: Message) -> str:
    """How a message begins: its text, else its calls, results or images."""
    words: list[str] = []
    for part in message.parts:
        match part:
            case ToolCall(name=name):
                words.append(f"calls {name}")
            case ToolResult(content=content):
                words.extend("an image" if isinstance(item, Image) else item.text for item in content)
            case Image():
                words.append("an image")
            case Thinking():
                words.append("thinking")
            case _:
                pass
    return " ".join((message.text() or ", ".join(words))[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]


def block_line(state: State, item: TokenLine, why: str, text: str) -> ExplainedLine:
    """A block, as its line of the account says."""
    begins = " ".join(text[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]
    return ExplainedLine(
        state, "block", item.slot, item.name, why, item.tokens, item.tokens, source=item.source, text=begins
    )


def message_line(state: State, row: StoredMessage, why: str, tokens: int, whole: int) -> ExplainedLine:
    """A message of the ledger."""
    text = excerpt(row.message)
    return ExplainedLine(state, "message", "history", row.message.role, why, tokens, whole, place=row.place, text=text)


def supplied_line(message: Message, tokens: int) -> ExplainedLine:
    """What stands among the messages and is none of the ledger's."""
    why = "supplied: a call has no result" if message.role == "tool" else "supplied: a conversation starts with a user"
    return ExplainedLine("included", "supplied", "history", message.role, why, tokens, tokens, text=excerpt(message))
