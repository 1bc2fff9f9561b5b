"""The lines of an explanation as values, and their construction from messages and blocks."""

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
"""Maximum length of a line's text."""


class ExplainedLine(Struct, frozen=True, omit_defaults=True):
    """One block, tool, message or image of a call, and its state."""

    state: State
    kind: Kind
    slot: str
    name: str
    reason: str
    tokens: int
    """Provider tokens in this call."""
    full_tokens: int
    """Provider tokens without truncation."""
    place: MessageRef | None = None
    """Reference of a message in the ledger."""
    source: str = ""
    """Source of a block."""
    text: str = ""
    """Beginning of the text."""


class Explanation(Struct, frozen=True):
    """A call explained. The lines are in the order of system slot, tools, history and message."""

    session: str
    call: str
    """The call's name in messages."""
    model: str
    provider: str
    available: int
    used: int
    """Sum of the lines' tokens."""
    lines: tuple[ExplainedLine, ...]
    warnings: tuple[str, ...] = ()

    def tokens(self, state: State) -> int:
        """Return the tokens of everything in a state without truncation."""
        return sum(line.full_tokens for line in self.lines if line.state == state)


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a number into whole parts in proportion to the weights, evenly if all are 0. The parts add up to it."""
    if not sum(weights):
        weights = [1] * len(weights)
    weight_sum = sum(weights)
    parts: list[int] = []
    cumulative = assigned = 0
    for weight in weights:
        cumulative += weight
        parts.append(total * cumulative // weight_sum - assigned)
        assigned += parts[-1]
    return parts


def one_line(text: str) -> str:
    """Return the beginning of a text on one line, as an excerpt."""
    return " ".join(text[: 4 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]


def excerpt(message: Message) -> str:
    """Return the beginning of a message: its text, else its calls, results or images."""
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
    return one_line(message.text() or ", ".join(words))


def block_line(state: State, line: TokenLine, reason: str, text: str) -> ExplainedLine:
    """Return the line of a block, with the tokens of its line in the token breakdown."""
    return ExplainedLine(
        state, "block", line.slot, line.name, reason, line.tokens, line.tokens, source=line.source, text=one_line(text)
    )


def message_line(state: State, row: StoredMessage, reason: str, tokens: int, full_tokens: int) -> ExplainedLine:
    """Return the line of a message of the ledger."""
    text = excerpt(row.message)
    role = row.message.role
    return ExplainedLine(state, "message", "history", role, reason, tokens, full_tokens, place=row.ref, text=text)


def supplied_line(message: Message, tokens: int) -> ExplainedLine:
    """Return the line of a synthetic message, which is not in the ledger."""
    reason = "supplied: the call has no result"
    if message.role != "tool":
        reason = "supplied: a conversation starts with a user message"
    return ExplainedLine("included", "supplied", "history", message.role, reason, tokens, tokens, text=excerpt(message))
