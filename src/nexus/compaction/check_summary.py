"""Judging a summary before it is stored: whether it is one, is smaller than what it replaces, and lost nothing exact.

A summariser may answer the conversation instead of summing it up, refuse, loop, or return what it was given. Any of
these stored in place of history would be believed by every later call.
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
"""The share of identifiers that a summary must have by default."""

_NGRAM, _MOST_REPEATS, _MOST_REPEATED_SHARE = 6, 6, 0.35
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
_WORD = re.compile(r"[^\W_]+|[\u3400-\u9fff]")


class SummaryVerdict(Struct, frozen=True):
    """What an audit found. `reasons` has one sentence for each of the `faults`; a summary without faults may be stored.

    `kept_share` is the share of the identifiers that stand in the summary; `repeated_share` that of words in repeats.
    """

    faults: tuple[Fault, ...]
    reasons: tuple[str, ...]
    tokens: int
    source_tokens: int
    kept_share: float = 1.0
    missing: tuple[str, ...] = ()
    repeated_share: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the summary may take the place of what it covers."""
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
    """The verdict on a summary of `tokens` that is to replace `source_tokens`; all faults are named, not the first only.

    `identifiers` are those that it should have; `headings` lines that must stand in it; `margin_percent` by how much it
    must be smaller. Time is linear in the summary.
    """
    faults: dict[Fault, str] = {}
    text = sanitize_text(summary)
    body = _body(text)
    if not any(letter.isalnum() for letter in body):
        faults["empty"] = "it says nothing"
    most = source_tokens - source_tokens * margin_percent // 100
    if tokens > most:
        faults["not smaller"] = f"it has {tokens:,} tokens; to be worth it, {most:,} of {source_tokens:,} at most"
    lines = {line.strip() for line in text.split("\n")}
    if absent := [heading for heading in headings if heading not in lines]:
        faults["heading missing"] = f"without {', '.join(absent)}"
    missing = tuple(name for name in dict.fromkeys(identifiers) if name not in summary)
    share = 1 - len(missing) / len(set(identifiers)) if identifiers else 1.0
    if share < kept_share:
        faults["identifiers lost"] = f"{share:.0%} of the identifiers are in it, {kept_share:.0%} are asked for"
    for fault, form, opening in _PATTERNS:
        if hit := form.search(_opening(text) if opening else text):
            faults[fault] = f"it has {hit[0].strip()[:60]!r}"
    if body and _asks_back(body):
        faults["a question"] = "it ends by asking for something"
    repeated = _repeated_share(body)
    if repeated > _MOST_REPEATED_SHARE:
        faults["looping"] = f"{repeated:.0%} of its words are repeats"
    return SummaryVerdict(tuple(faults), tuple(faults.values()), tokens, source_tokens, share, missing, repeated)


def _body(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not line.startswith("#")).strip()


def _opening(text: str) -> str:
    """The first words, also those that follow a first heading without being a point of a list."""
    lines = [line for line in text.split("\n") if line.strip()]
    first = lines[0] if lines else ""
    if first.startswith("#") and len(lines) > 1 and not lines[1].lstrip().startswith((">", "-", "*", "+")):
        return lines[1]
    return first


def _asks_back(body: str) -> bool:
    """Whether it ends with a question of its own; a point of a list or a quotation may well be one."""
    last = body.rsplit("\n", 1)[-1].strip()
    return last.endswith(("?", "？")) and not last.startswith(
        ("-", "*", "+", ">", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    )


def _repeated_share(body: str) -> float:
    """The share of six-word runs that came six times before; lines with exact names may look alike without looping."""
    words = [word.lower() for word in _WORD.findall(body)]
    runs = len(words) - _NGRAM + 1
    if runs < _NGRAM * _MOST_REPEATS:
        return 0.0
    seen: dict[tuple[str, ...], int] = {}
    repeats = 0
    for at in range(runs):
        run = tuple(words[at : at + _NGRAM])
        seen[run] = seen.get(run, 0) + 1
        repeats += seen[run] > _MOST_REPEATS
    return repeats / runs
