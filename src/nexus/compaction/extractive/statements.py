"""Sentences of a text: split, put on one line, bounded, stripped of frame tags, and weighed as statements.

All steps take time linear in the text. Only the beginning and end of a very long text are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from nexus.compaction.extractive import patterns
from nexus.compaction.extractive.patterns import Kind, find_identifiers
from nexus.compaction.extractive.values import parse_clauses
from nexus.types.ledger_entries import MessageRef
from nexus.types.sanitize import sanitize_text


class ExtractedLine(Struct, frozen=True):
    """One line of a summary: a sentence, a path, or a command with its outcome."""

    kind: Kind
    text: str
    place: MessageRef
    """Source message; `seq` is 0 for a line of the previous summary."""
    weight: int
    """Importance from 0 to 100."""
    pending: bool = False
    """The newest request or an unanswered question: the next summary looks for them again."""


HEAD_CHARS, TAIL_CHARS = 40_000, 20_000
"""Only this much of a longer text is searched: the middle of a megabyte is pasted data."""

SENTENCE_CHARS = 320

_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_SPACE = re.compile(r"\s+")
_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]{0,2}\s+(?=[^\sa-z])|(?<=[。！？；])")
_MARKER = re.compile(
    r"\[(?=\\*(?:previous conversation summary|context summary|result unavailable|runtime context|session started|"
    r"tool_use:|shared_memory|system message))",
    re.IGNORECASE,
)
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|z\.B|d\.h|etc|vs|Mr|Mrs|Dr|No|Nr|approx|ca|cf|p\.ej)\.|^\d{1,3}\.)\Z")
_DAY = re.compile(r"\b\d{1,2}\.\Z")
_MONTH = re.compile(
    r"\s*(?:Jan(?:uar)?|Feb(?:ruar)?|März|Apr(?:il)?|Mai|Juni?|Juli?|Aug(?:ust)?|Sept?(?:ember)?|Okt(?:ober)?|"
    r"Nov(?:ember)?|Dez(?:ember)?)\b"
)
_ELEMENT = re.compile(
    r"<(system-reminder|local-command-[a-z]{1,10}|command-[a-z]{1,10}|ide_[a-z_]{1,30}|environment_details)>"
)


def limit_length(text: str) -> str:
    """Return the text without control characters; of a longer one the first 40,000 and last 20,000 characters."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
    return _CONTROL.sub(" ", sanitize_text(text))


def strip_markup(text: str) -> str:
    """Return the text without the elements that clients such as Claude Code and Cline add to a user's message."""
    pieces: list[str] = []
    at = 0
    while (tag := _ELEMENT.search(text, at)) is not None:
        close = f"</{tag[1]}>"
        end = text.find(close, tag.end())
        pieces.append(text[at : tag.start()])
        at = end + len(close) if end >= 0 else len(text)
    return "".join([*pieces, text[at:]])


def truncate_line(text: str, limit_chars: int = SENTENCE_CHARS) -> str:
    """Return the text on one line of at most so many characters, ellipsis included, with frame tags defused."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) > limit_chars:
        cut = line[: limit_chars - 2].rfind(" ", limit_chars * 2 // 3)
        line = f"{line[: cut if cut > 0 else limit_chars - 2].rstrip(' ,;:')} …"
    return _MARKER.sub("(", line)


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text outside fenced code."""
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield line


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text outside fenced code and tables, each on one line and truncated."""
    paragraph: list[str] = []
    for line in (*lines(text), ""):
        bare = line.strip()
        separate = not bare or bare[0] in "-*+#>|•" or bare[:2].rstrip(".)").isdigit() or bare.endswith((":", "："))
        # A line of 60 characters and more was probably wrapped: its sentence continues on the next line.
        if separate or len(bare) < 60:
            if paragraph and bare and not separate:
                paragraph.append(bare)
                bare = ""
            yield from _split(" ".join(paragraph))
            paragraph = []
            if bare and bare[0] != "|":
                yield from _split(bare)
        else:
            paragraph.append(bare)


def _split(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if _ABBREVIATION.search(text, max(start, end.start() - 8), end.start()):
            continue
        # German dates: "am 3. März" is one sentence.
        if _MONTH.match(text, end.start()) and _DAY.search(text, max(start, end.start() - 4), end.start()):
            continue
        if piece := truncate_line(text[start : end.end()]):
            yield piece
        start = end.end()
    if piece := truncate_line(text[start:]):
        yield piece


VALUE, EXACT, PLAIN = 75, 55, 36
"""Weights of a user's statement: with a value, with an exact name or number, any other."""

STATEMENT_CHARS = 220
MIN_WORDS = 5
"""Words that a statement without exact content must have; two Chinese characters count as one."""

LETTER_SHARE = 0.7
"""Share of letters and blanks in prose; a Chinese character counts twice."""

_NUMBER = re.compile(r"\d{2,}|\d[.,:/]\d")
_NAME = re.compile(
    r"(?<=[\w,;:] )(?!I\b)[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+ (?:(?:van|von|de|der|di|la|le) )?[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+"
)
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_JOINED = re.compile(r"\b\w+(?:[_/]\w+)+|\b\w+(?:-\w+)*-\d\w*")


def states_value(sentence: str) -> bool:
    """Return true for a short statement with a value (a date, a name, an amount, an address)."""
    return _is_statement(sentence) and bool(parse_clauses(sentence) or patterns.SELF_STATEMENT.search(sentence))


def has_figure(sentence: str) -> bool:
    """Return true for a short statement with a number or a person's name."""
    return _is_statement(sentence) and any(form.search(sentence) for form in (_NUMBER, _NAME))


def weight_of(sentence: str) -> int:
    """Return the weight of a user's sentence without a cue; 0 for questions, headings and courtesies."""
    if not _is_statement(sentence):
        return 0
    if states_value(sentence):
        return VALUE
    if has_figure(sentence) or _JOINED.search(sentence) or next(find_identifiers(sentence), None) is not None:
        return EXACT
    word_count = len(sentence.split()) + (0 if sentence.isascii() else len(WIDE.findall(sentence)) // 2)
    courtesy = word_count < MIN_WORDS or patterns.THANKS.match(sentence) is not None or patterns.is_soft(sentence)
    return PLAIN if is_prose(sentence) and not courtesy else 0


def is_prose(sentence: str) -> bool:
    """Return true if most characters are letters, unlike in code, paths, tables or output."""
    wide = len(WIDE.findall(sentence))
    letters = sum(letter.isalpha() or letter == " " for letter in sentence) + wide
    return letters >= LETTER_SHARE * (len(sentence) + wide)


def _is_statement(sentence: str) -> bool:
    return (
        len(sentence) <= STATEMENT_CHARS
        and len(sentence.split()) + 4 * (not sentence.isascii()) > 2
        and not sentence.rstrip().endswith(("?", "？", ":", "：", "]"))
    )
