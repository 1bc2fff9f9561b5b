"""Checks of a summary before it is stored: form, size, lost identifiers, replies, refusals and loops.

A summarizer may answer the conversation instead of summarizing it, refuse, loop, or return its input. Stored in place of
history, any of these would mislead every later call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from nexus.compaction.extractive.summary import TASK
from nexus.types.sanitize import sanitize_text

Fault: TypeAlias = Literal[
    "empty",
    "not smaller",
    "heading missing",
    "identifiers lost",
    "a reply",
    "a refusal",
    "a question",
    "instructions",
    "a tool call",
    "role lines",
    "looping",
    "forged marker",
]

KEPT_SHARE = 0.6
"""Share of the identifiers that a summary must contain."""

_NGRAM, _MAX_REPEATS, _MAX_REPEATED_SHARE = 6, 6, 0.35
_REPLY = re.compile(
    r"^\W{0,4}(?:sure|certainly|of course|absolutely|okay|ok|great|got it|understood|thank(?:s| you)|you['’]re welcome|happy to|"
    r"hello|hi|here(?:['’]s| is) (?:the|your|what|how)|i(?:['’]d be| would be| am|['’]m) (?:happy|glad|ready|here)|i(?:['’]ll| will| can)|"
    r"let me|let['’]s|gern(?:e)?|natürlich|klar|bien sûr|d['’]accord|claro|por supuesto|好的|当然|没问题)[\s,!.:。，！]",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"^\W{0,4}(?:(?:i['’]?m|i am) (?:sorry|unable|not able|afraid)|sorry|unfortunately|as an? (?:ai|language model|assistant)\b|i (?:cannot|can['’]?t|can not|won['’]?t|"
    r"am unable|don['’]t have)|(?:es )?tut mir leid|ich kann (?:das |dies )?(?:leider )?nicht|je (?:suis désolé|ne peux pas)|désolé|"
    r"lo siento|no puedo|抱歉|对不起|我无法|我不能)",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"^[^\w\n]{0,4}(?:you are (?:now |a |an )|ignore (?:all|any|the|previous)|disregard (?:all|any|the|previous)|from now on,? you|"
    r"your (?:new )?(?:task|role|instructions?) (?:is|are)|system prompt|summari[sz]e the)\b",
    re.IGNORECASE | re.MULTILINE,
)
_TOOL_CALL = re.compile(
    r"^[ \t]{0,8}(?:</?(?:tool_call|tool_use|function_calls?|invoke|antml|tool_code|tool_response)\b|\[TOOL_CALLS\]|<\|(?:tool|python)_|"
    r"\{\s*\"(?:name|tool|function|tool_calls|arguments)\"\s*:|```(?:tool_code|tool_call)|to=functions\.)",
    re.IGNORECASE | re.MULTILINE,
)
_ROLE = re.compile(
    r"^[ \t]{0,8}(?:(?:human|user|assistant|system|ai|nexus|tool)\s*:|<\|(?:im_start|start_header_id|user|assistant|system)|"
    r"\[(?:user|assistant|system)\])",
    re.IGNORECASE | re.MULTILINE,
)
_MARKER = re.compile(
    r"\[\\*(?:previous conversation summary|context summary|result unavailable|runtime context|session started|system message|"
    r"shared_memory|tool_use:)",
    re.IGNORECASE,
)
_PATTERNS: tuple[tuple[Fault, re.Pattern[str], bool], ...] = (
    ("a refusal", _REFUSAL, True),
    ("a reply", _REPLY, True),
    ("instructions", _INSTRUCTION, False),
    ("a tool call", _TOOL_CALL, False),
    ("role lines", _ROLE, False),
    ("forged marker", _MARKER, False),
)
_WORDS = re.compile(r"[^\W_]+|[\u3400-\u9fff]")


class SummaryVerdict(Struct, frozen=True):
    """Result of the checks."""

    faults: tuple[Fault, ...]
    reasons: tuple[str, ...]
    """One sentence for each fault. The next prompt contains them, so their wording is text that a model reads."""
    tokens: int
    source_tokens: int
    kept_share: float = 1.0
    """Share of the identifiers in the summary."""
    missing: tuple[str, ...] = ()
    repeated_share: float = 0.0
    """Share of six-word runs that are repeats."""

    @property
    def accepted(self) -> bool:
        """True if the summary may replace its source."""
        return not self.faults


def check_summary(
    summary: str,
    tokens: int,
    source_tokens: int,
    *,
    identifiers: Sequence[str] = (),
    headings: Sequence[str] = (TASK,),
    margin_percent: int = 10,
    kept_share: float = KEPT_SHARE,
) -> SummaryVerdict:
    """Check a summary of `tokens` that replaces `source_tokens`, and return all faults. Time is linear in the text.

    Args:
        summary: Text to check.
        tokens: Its size.
        source_tokens: Size of its source.
        identifiers: Names that it should contain.
        headings: Lines that it must contain.
        margin_percent: How much smaller than its source it must be.
        kept_share: Share of the identifiers that it must contain.
    """
    faults: dict[Fault, str] = {}
    text = sanitize_text(summary)
    body = "\n".join(line for line in text.split("\n") if not line.startswith("#")).strip()
    if not any(letter.isalnum() for letter in body):
        faults["empty"] = "it says nothing"
    limit = source_tokens - source_tokens * margin_percent // 100
    if tokens > limit:
        faults["not smaller"] = f"it has {tokens:,} tokens; to be worth it, {limit:,} of {source_tokens:,} at most"
    lines = {line.strip() for line in text.split("\n")}
    if absent := [heading for heading in headings if heading not in lines]:
        faults["heading missing"] = f"without {', '.join(absent)}"
    missing = tuple(name for name in dict.fromkeys(identifiers) if name not in summary)
    share = 1 - len(missing) / len(set(identifiers)) if identifiers else 1.0
    if share < kept_share:
        faults["identifiers lost"] = f"{share:.0%} of the identifiers are in it, {kept_share:.0%} are asked for"
    for fault, form, only_opening in _PATTERNS:
        if hit := form.search(_opening(text) if only_opening else text):
            faults[fault] = f"it has {hit[0].strip()[:60]!r}"
    # A list item or a quotation may well be a question.
    last = body.rsplit("\n", 1)[-1].strip()
    if last.endswith(("?", "？")) and not last.startswith(tuple("-*+>123456789")):
        faults["a question"] = "it ends by asking for something"
    repeated = _repeated_share(body)
    if repeated > _MAX_REPEATED_SHARE:
        faults["looping"] = f"{repeated:.0%} of its words are repeats"
    return SummaryVerdict(tuple(faults), tuple(faults.values()), tokens, source_tokens, share, missing, repeated)


def _opening(text: str) -> str:
    """Return the first line, or the one after a leading heading unless it is a list item."""
    lines = [line for line in text.split("\n") if line.strip()]
    first = lines[0] if lines else ""
    if first.startswith("#") and len(lines) > 1 and not lines[1].lstrip().startswith((">", "-", "*", "+")):
        return lines[1]
    return first


def _repeated_share(body: str) -> float:
    """Return the share of six-word runs that occurred six times before: lines with exact names look alike anyway."""
    words = [match.lower() for match in _WORDS.findall(body)]
    runs = len(words) - _NGRAM + 1
    if runs < _NGRAM * _MAX_REPEATS:
        return 0.0
    counts: dict[tuple[str, ...], int] = {}
    repeats = 0
    for at in range(runs):
        run = tuple(words[at : at + _NGRAM])
        counts[run] = counts.get(run, 0) + 1
        repeats += counts[run] > _MAX_REPEATS
    return repeats / runs
