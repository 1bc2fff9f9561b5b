"""Document 004's compaction: choose messages, ask for a summary, replace the messages by it.

Choosing and wrapping follow the document. The prompt, the check of a model's summary and the summary without a model
are those of `nexus.summarization`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context.messages import AnyMessage, M, sent_messages, shown_messages, stored_messages
from nexus.compat.nexus3.context.token_counter import TokenCounter, get_token_counter
from nexus.compat.nexus3.context.truncation import flatten_groups, identify_message_groups, newest_within
from nexus.compat.nexus3.context.view import stamp, system_clock_ms, visible_messages
from nexus.summarization import FallbackSummarizer, SummaryReply, SummaryRequest, prompt
from nexus.text.frames import escape, unescape
from nexus.tokens.counter import get_counter
from nexus.types.history import CONTEXT_SUMMARY, GENERATED, SESSION_SOURCE
from nexus.types.ledger_entries import MessageRef, StoredMessage
from nexus.types.message import Message, Text, TokenSize

__all__ = [
    "CALL_TOKENS",
    "RECENT_PRESERVE_RATIO",
    "SUMMARY_TOKENS",
    "CompactionResult",
    "build_summarize_prompt",
    "compact_messages",
    "create_summary_message",
    "generate_summary",
    "select_messages_for_compaction",
    "summary_text",
]

SUMMARY_SOURCE = "nexus:summary"
RECENT_PRESERVE_RATIO = 0.25
SUMMARY_TOKENS = 2_000
"""Default size of a summary, in o200k tokens."""

CALL_TOKENS = 24_000
"""Tokens of conversation in one call of a model."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A summary message, the preserved messages, and document 004's token counts before and after."""

    summary_message: core.Message
    preserved_messages: list[core.Message]
    original_token_count: int
    new_token_count: int


def select_messages_for_compaction(
    messages: Sequence[M],
    token_counter: TokenCounter,
    available_budget: int,
    recent_preserve_ratio: float = RECENT_PRESERVE_RATIO,
) -> tuple[list[M], list[M]]:
    """Return the messages to summarize and those to preserve: the newest whole groups in a share of the budget.

    The newest group and the message with the session's start are always preserved.
    """
    starts = [message.source == SESSION_SOURCE for message in stored_messages(messages)]
    start = [message for message, is_start in zip(messages, starts, strict=True) if is_start]
    groups = identify_message_groups(
        message for message, is_start in zip(messages, starts, strict=True) if not is_start
    )
    budget = int(available_budget * recent_preserve_ratio)
    recent = newest_within(groups, budget, lambda group: count_group(token_counter, group)) or groups[-1:]
    return flatten_groups(groups[: len(groups) - len(recent)]), [*start, *flatten_groups(recent)]


def count_group(token_counter: TokenCounter, group: Iterable[AnyMessage]) -> int:
    """Return the tokens of a group as it is sent."""
    return token_counter.count_messages(sent_messages(visible_messages(stored_messages(group), started=True)))


def build_summarize_prompt(messages: Sequence[AnyMessage], *, focus: str = "") -> str:
    """Return the prompt that asks a model for a summary of the messages, without secrets.

    An earlier summary among the messages is to be updated. `focus` is the topic that the summary should keep above all.
    """
    previous, rest = _parts(messages)
    return prompt.build_summarize_prompt(rest, focus=focus, previous=previous)


def create_summary_message(summary_text: str, *, at_ms: int | None = None, timezone: str = "") -> core.Message:
    """Return the summary as a user message, after the documented heading and its time (default: now)."""
    return shown_messages([stored_summary(summary_text, at_ms, timezone)])[0]


def stored_summary(summary_text: str, at_ms: int | None, timezone: str) -> Message:
    """Return the message of `create_summary_message` as the ledger has it."""
    at_ms = system_clock_ms() if at_ms is None else at_ms
    text = f"{CONTEXT_SUMMARY}{GENERATED}{stamp(at_ms, timezone)}\n{escape(summary_text)}"
    return Message("user", (Text(text),), at_ms=at_ms, source=SUMMARY_SOURCE)


def summary_text(message: AnyMessage) -> str:
    """Return the summary that a summary message contains; the whole text of any other message."""
    text = stored_messages([message])[0].text()
    if not text.startswith(CONTEXT_SUMMARY):
        return text
    first, _, rest = text.removeprefix(CONTEXT_SUMMARY).partition("\n")
    return unescape(rest if first.startswith(GENERATED) else text.removeprefix(CONTEXT_SUMMARY))


def generate_summary(
    messages: Sequence[AnyMessage],
    *,
    limit_tokens: int = SUMMARY_TOKENS,
    ask: Callable[[str], str] | None = None,
    focus: str = "",
) -> str:
    """Return a summary of the messages in at most `limit_tokens` (o200k); empty if nothing fits.

    `ask` sends a prompt to a model and returns its reply. Without it, or if two replies are rejected or fail, the
    summary is extractive (`nexus.summarization.FallbackSummarizer`). Long conversations are summarized in parts.
    """
    previous, rest = _parts(messages)
    summarizer = FallbackSummarizer(get_counter(), _FunctionSummarizer(ask) if ask is not None else None)
    rows = [StoredMessage(MessageRef(at, 0), message, TokenSize(0, 0, 0)) for at, message in enumerate(rest, 1)]
    return summarizer.summary(rows, previous, limit_tokens, focus=focus).text


def compact_messages(
    messages: Sequence[AnyMessage],
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
    """Choose, summarize and wrap in one step, for `ContextManager.apply_compaction`; see `generate_summary`.

    Returns None if there are no messages to summarize, or if the conversation would not become smaller.
    """
    counter = token_counter or get_token_counter()
    messages = shown_messages(stored_messages(messages))
    older, preserved = select_messages_for_compaction(messages, counter, available_budget, recent_preserve_ratio)
    text = ""
    if older:
        text = generate_summary(older, limit_tokens=limit_tokens, ask=ask, focus=focus)
    if not text:
        return None
    summary = create_summary_message(text, at_ms=at_ms, timezone=timezone)
    before = counter.count_messages(messages)
    after = counter.count_messages([summary, *preserved])
    if after < before:
        return CompactionResult(summary, preserved, before, after)
    return None


class _FunctionSummarizer:
    """Summarizer that calls a function from prompt to reply."""

    name: str = "ask"
    call_tokens: int = CALL_TOKENS

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        """Return the model's reply to the request's prompt."""
        text = prompt.build_summarize_prompt(
            (row.message for row in request.rows),
            focus=request.focus,
            previous=request.previous,
            most_tokens=request.most_tokens,
            stricter=request.stricter,
            refused_because=request.refused_because,
        )
        return SummaryReply(self._ask(text))


def _parts(messages: Sequence[AnyMessage]) -> tuple[str, list[Message]]:
    """Return the text of earlier summaries, and the other messages without the session's first line."""
    stored = stored_messages(messages)
    summaries = [summary_text(message) for message in stored if message.source == SUMMARY_SOURCE]
    rest = [message for message in stored if message.source not in (SUMMARY_SOURCE, SESSION_SOURCE)]
    return "\n\n".join(summaries), rest
