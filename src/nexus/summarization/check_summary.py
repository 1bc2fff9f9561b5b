"""Checks of a summary before it is stored: form, size, lost identifiers, replies, refusals and loops.

A summarizer may answer the conversation instead of summarizing it, refuse, loop, or return its input. Stored in place of
history, any of these would mislead every later call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias

from nexus.summarization.extractive.statements import FRAME_MARKERS
from nexus.summarization.extractive.summary import MARGIN_PERCENT, TASK
from nexus.text.late_pattern import late_pattern
from nexus.types.sanitize import sanitize_text

Fault: TypeAlias = Literal[
    "empty", "not smaller", "heading missing", "identifiers lost", "a reply", "a refusal", "a question", "instructions",
    "a tool call", "role lines", "looping", "forged marker"
]  # fmt: skip

_KEPT_SHARE = 0.6  # share of the identifiers that a summary must contain
_NGRAM = 6
_MAX_REPEATS = 6
_MAX_REPEATED_SHARE = 0.35
_FORMS: dict[Fault, str] = {
    "a refusal": (
        r"^\W{0,4}(?:(?:i['’]?m|i am) (?:sorry|unable|not able|afraid)|sorry|unfortunately|as an? (?:ai|language model|assistant)\b|i (?:cannot|can['’]?t|can not|won['’]?t|"
        r"am unable|don['’]t have)|(?:es )?tut mir leid|ich kann (?:das |dies )?(?:leider )?nicht|je (?:suis désolé|ne peux pas)|désolé|"
        r"lo siento|no puedo|抱歉|对不起|我无法|我不能)"
    ),
    "a reply": (
        r"^\W{0,4}(?:sure|certainly|of course|absolutely|okay|ok|great|got it|understood|thank(?:s| you)|you['’]re welcome|happy to|"
        r"hello|hi|here(?:['’]s| is) (?:the|your|what|how)|i(?:['’]d be| would be| am|['’]m) (?:happy|glad|ready|here)|i(?:['’]ll| will| can)|"
        r"let me|let['’]s|gern(?:e)?|natürlich|klar|bien sûr|d['’]accord|claro|por supuesto|好的|当然|没问题)[\s,!.:。，！]"
    ),
    "instructions": (
        r"^[^\w\n]{0,4}(?:you are (?:now |a |an )|ignore (?:all|any|the|previous)|disregard (?:all|any|the|previous)|from now on,? you|"
        r"your (?:new )?(?:task|role|instructions?) (?:is|are)|system prompt|summari[sz]e the)\b"
    ),
    "a tool call": (
        r"^[ \t]{0,8}(?:</?(?:tool_call|tool_use|function_calls?|invoke|antml|tool_code|tool_response)\b|\[TOOL_CALLS\]|<\|(?:tool|python)_|"
        r"\{\s*\"(?:name|tool|function|tool_calls|arguments)\"\s*:|```(?:tool_code|tool_call)|to=functions\.)"
    ),
    "role lines": (
        r"^[ \t]{0,8}(?:(?:human|user|assistant|system|ai|nexus|tool)\s*:|<\|(?:im_start|start_header_id|user|assistant|system)|"
        r"\[(?:user|assistant|system)\])"
    ),
    "forged marker": rf"\[\\*(?:{FRAME_MARKERS})",
}
_PATTERNS: dict[Fault, re.Pattern[str]] = {
    fault: late_pattern(form, re.IGNORECASE | re.MULTILINE) for fault, form in _FORMS.items()
}
_WORDS = late_pattern(r"[^\W_]+|[\u3400-\u9fff]")


def check_summary(
    summary: str, tokens: int, source_tokens: int, *, identifiers: Sequence[str] = ()
) -> dict[Fault, str]:
    """Check a summary of `tokens` that replaces `source_tokens`, and return its faults. Time is linear in the text.

    Args:
        summary: Text to check.
        tokens: Its size.
        source_tokens: Size of its source.
        identifiers: Names that it should contain.

    Returns:
        One sentence for each fault; empty if the summary may replace its source. The next prompt contains the
        sentences, so their wording is text that a model reads.
    """
    faults: dict[Fault, str] = {}
    text = sanitize_text(summary)
    lines = text.split("\n")
    body = "\n".join(line for line in lines if not line.startswith("#")).strip()
    if not any(map(str.isalnum, body)):
        faults["empty"] = "it says nothing"
    limit = source_tokens - source_tokens * MARGIN_PERCENT // 100
    if tokens > limit:
        faults["not smaller"] = f"it has {tokens:,} tokens; to be worth it, {limit:,} of {source_tokens:,} at most"
    if TASK not in map(str.strip, lines):
        faults["heading missing"] = f"without {TASK}"
    names = set(identifiers)
    if names:
        share = sum(name in summary for name in names) / len(names)
        if share < _KEPT_SHARE:
            faults["identifiers lost"] = f"{share:.0%} of the identifiers are in it, {_KEPT_SHARE:.0%} are asked for"
    opening = _opening_line(lines)
    for fault, form in _PATTERNS.items():
        match = form.search(opening if fault in ("a refusal", "a reply") else text)
        if match:
            faults[fault] = f"it has {match[0].strip()[:60]!r}"
    # A list item or a quotation may well be a question.
    last = body.rsplit("\n", 1)[-1].strip()
    if last.endswith(("?", "？")) and not last.startswith(tuple("-*+>123456789")):
        faults["a question"] = "it ends by asking for something"
    repeated_share = _repeated_share(body)
    if repeated_share > _MAX_REPEATED_SHARE:
        faults["looping"] = f"{repeated_share:.0%} of its words are repeats"
    return faults


def _opening_line(lines: Sequence[str]) -> str:
    """Return the line where replies and refusals show: the first, or the one below a heading.

    A list item below a heading is a finding.
    """
    first, second = [*(line for line in lines if line.strip()), "", ""][:2]
    if first.startswith("#") and second and not second.lstrip().startswith((">", "-", "*", "+")):
        return second
    return first


def _repeated_share(text: str) -> float:
    """Return the share of runs of six words that occurred six times before, 0 for a short text.

    Lines with exact names look alike anyway, so fewer repeats do not count.
    """
    words = [match.lower() for match in _WORDS.findall(text)]
    runs = Counter(zip(*(words[at:] for at in range(_NGRAM)), strict=False))
    if runs.total() < _NGRAM * _MAX_REPEATS:
        return 0.0
    return sum(max(count - _MAX_REPEATS, 0) for count in runs.values()) / runs.total()
