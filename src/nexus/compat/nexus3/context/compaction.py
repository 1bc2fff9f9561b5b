"""Compaction as document 004 has it: choose what is summarised, ask for a summary, put it in the place of the messages.

Choosing and wrapping are its functions. The text asked for, the audit of what a model answers and the summary without a
model are those of `nexus.compaction.extractive`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nexus.compaction import FallbackSummarizer, SummaryReply, SummaryRequest, prompt
from nexus.compat.nexus3.context.stamps import stamp, system_clock_ms
from nexus.compat.nexus3.context.token_counter import TokenCounter, get_token_counter
from nexus.compat.nexus3.context.truncation import flatten_groups, identify_message_groups, newest_within
from nexus.compat.nexus3.context.view import visible_messages
from nexus.text.frames import escape, unescape
from nexus.tokens.counter import get_counter
from nexus.types.history import CONTEXT_SUMMARY, GENERATED, SESSION_SOURCE
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Text, TokenSize

SUMMARY_SOURCE = "nexus:summary"
RECENT_PRESERVE_RATIO = 0.25
SUMMARY_TOKENS = 2_000
"""The room of a summary where none is given, in o200k tokens."""

CALL_TOKENS = 24_000
"""A model is asked about so many tokens of conversation at a time."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A summary message, the messages that stay as they are, and the door's token counts before and after."""

    summary_message: Message
    preserved_messages: list[Message]
    original_token_count: int
    new_token_count: int


def select_messages_for_compaction(
    messages: Sequence[Message],
    token_counter: TokenCounter,
    available_budget: int,
    recent_preserve_ratio: float = RECENT_PRESERVE_RATIO,
) -> tuple[list[Message], list[Message]]:
    """The messages to summarise, and those to preserve: the newest whole groups in so much of the budget.

    The most recent group and the message that says when the session began are preserved in any case.
    """
    start = [message for message in messages if message.source == SESSION_SOURCE]
    groups = identify_message_groups(message for message in messages if message.source != SESSION_SOURCE)
    room = int(available_budget * recent_preserve_ratio)
    recent = newest_within(
        groups, room, lambda group: token_counter.count_messages(visible_messages(group, begun=True))
    )
    recent = recent or groups[-1:]
    return flatten_groups(groups[: len(groups) - len(recent)]), [*start, *flatten_groups(recent)]


def build_summarize_prompt(messages: Sequence[Message], *, focus: str = "") -> str:
    """The text that asks a model for a summary of the messages, secrets taken out; an earlier summary is to be updated.

    `focus` is what the summary should keep above all.
    """
    previous, rest = _parts(messages)
    return prompt.build_summarize_prompt(rest, focus=focus, previous=previous)


def create_summary_message(summary_text: str, *, at_ms: int | None = None, timezone: str = "") -> Message:
    """The summary as a user's message, after the printed words and the time at which it was made (now, if not given)."""
    at_ms = system_clock_ms() if at_ms is None else at_ms
    text = f"{CONTEXT_SUMMARY}{GENERATED}{stamp(at_ms, timezone)}\n{escape(summary_text)}"
    return Message("user", (Text(text),), at_ms=at_ms, source=SUMMARY_SOURCE)


def summary_text(message: Message) -> str:
    """The summary that a summary message wraps; the whole text of a message of another form."""
    text = message.text()
    if not text.startswith(CONTEXT_SUMMARY):
        return text
    first, _, rest = text.removeprefix(CONTEXT_SUMMARY).partition("\n")
    return unescape(rest if first.startswith(GENERATED) else text.removeprefix(CONTEXT_SUMMARY))


def generate_summary(
    messages: Sequence[Message],
    *,
    limit_tokens: int = SUMMARY_TOKENS,
    ask: Callable[[str], str] | None = None,
    focus: str = "",
) -> str:
    """A summary of the messages in at most `limit_tokens` (o200k); empty if there is nothing to say in so few.

    `ask` sends a prompt to a model and returns its answer; without it, and where two answers are refused or fail, the
    summary is made by rule: see `nexus.compaction.Ladder`. Long conversations are asked about in parts.
    """
    previous, rest = _parts(messages)
    ladder = FallbackSummarizer(get_counter(), _Asking(ask) if ask is not None else None)
    return ladder.summary(_rows(rest), previous, limit_tokens, focus=focus).text


def compact_messages(
    messages: Sequence[Message],
    token_counter: TokenCounter | None = None,
    available_budget: int = 6_000,
    recent_preserve_ratio: float = RECENT_PRESERVE_RATIO,
    *,
    limit_tokens: int = SUMMARY_TOKENS,
    ask: Callable[[str], str] | None = None,
    focus: str = "",
    at_ms: int | None = None,
    timezone: str = "",
) -> CompactionResult | None:
    """Choose, summarise and wrap in one step: what `ContextManager.apply_compaction` takes. See `generate_summary`.

    None if there is nothing to summarise, or if it would not get smaller.
    """
    counter = token_counter or get_token_counter()
    older, preserved = select_messages_for_compaction(messages, counter, available_budget, recent_preserve_ratio)
    text = generate_summary(older, limit_tokens=limit_tokens, ask=ask, focus=focus) if older else ""
    if not text:
        return None
    summary = create_summary_message(text, at_ms=at_ms, timezone=timezone)
    before, after = counter.count_messages(messages), counter.count_messages([summary, *preserved])
    return CompactionResult(summary, preserved, before, after) if after < before else None


class _Asking:
    """A function that takes a prompt and returns a model's answer, as a summariser."""

    name: str = "ask"
    call_tokens: int = CALL_TOKENS

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """What the model answers to the request's text."""
        asked = prompt.build_summarize_prompt(
            (row.message for row in request.rows),
            focus=request.focus,
            previous=request.previous,
            most_tokens=request.most_tokens,
            stricter=request.stricter,
            refused_because=request.refused_because,
        )
        return SummaryReply(self._ask(asked))


def _parts(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """The earlier summaries among the messages as text, and the other messages without the session's first line."""
    earlier = [summary_text(message) for message in messages if message.source == SUMMARY_SOURCE]
    rest = [message for message in messages if message.source not in (SUMMARY_SOURCE, SESSION_SOURCE)]
    return "\n\n".join(earlier), rest


def _rows(messages: Sequence[Message]) -> list[StoredMessage]:
    return [StoredMessage(MessageRef(at + 1, 0), message, TokenSize(0, 0, 0)) for at, message in enumerate(messages)]
