"""Text cut into sentences, each on one line, bounded and free of what a later reader could take for a frame.

All steps take time linear in the text; of a very long text only its beginning and end are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from nexus.compaction.extractive import patterns as cues
from nexus.compaction.extractive import values as slots
from nexus.compaction.extractive.patterns import Kind, find_identifiers
from nexus.types.ledger_entries import MessageRef
from nexus.types.sanitize import sanitize_text


class ExtractedLine(Struct, frozen=True):
    """One thing to keep: a whole sentence, a path, a command with its outcome.

    `weight` is 0 to 100: how much is lost without it. A place of seq 0 is a line of the summary before. `asked` marks the
    newest request and unanswered questions, which a later summary finds anew or leaves out.
    """

    kind: Kind
    text: str
    place: MessageRef
    weight: int
    asked: bool = False


HEAD_CHARS, TAIL_CHARS = 40_000, 20_000
"""Of a longer text only this much at its beginning and end is searched: the middle of a megabyte is pasted data."""

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
    """The text, or its first 40,000 and last 20,000 characters if it has more; no control or invisible characters."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
    return _CONTROL.sub(" ", sanitize_text(text))


def strip_markup(text: str) -> str:
    """The text without the elements that clients add to what their user wrote (Claude Code, Cline and others)."""
    pieces: list[str] = []
    at = 0
    while (opened := _ELEMENT.search(text, at)) is not None:
        close = f"</{opened[1]}>"
        end = text.find(close, opened.end())
        pieces.append(text[at : opened.start()])
        if end < 0:
            at = len(text)
            break
        at = end + len(close)
    return "".join([*pieces, text[at:]])


def truncate_line(text: str, most_chars: int = SENTENCE_CHARS) -> str:
    """The text on one line of at most so many characters, three dots included, with marks of ours made harmless."""
    line = _SPACE.sub(" ", text).strip()
    if len(line) > most_chars:
        cut = line[: most_chars - 2].rfind(" ", most_chars * 2 // 3)
        line = f"{line[: cut if cut > 0 else most_chars - 2].rstrip(' ,;:')} …"
    return _MARKER.sub("(", line)


def lines(text: str) -> Iterator[str]:
    """The lines of a text that stand outside fenced code."""
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield line


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, outside fenced code and tables, each on one line; those that are too long are cut."""
    paragraph: list[str] = []
    for line in (*lines(text), ""):
        bare = line.strip()
        own = not bare or bare[0] in "-*+#>|•" or bare[:2].rstrip(".)").isdigit() or bare.endswith((":", "："))
        if own or len(bare) < 60:
            if paragraph and bare and not own:
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
        if _MONTH.match(text, end.start()) and _DAY.search(text, max(start, end.start() - 4), end.start()):
            continue
        if piece := truncate_line(text[start : end.end()]):
            yield piece
        start = end.end()
    if piece := truncate_line(text[start:]):
        yield piece


VALUE, EXACT, PLAIN = 75, 55, 36
"""Weights of a user's statement: one that gives something a value, one with an exact name or number, any other."""

MOST_CHARS = 220
LEAST_WORDS = 5
"""A statement with nothing exact in it has at least so many words; two Chinese characters are one."""

LETTERS = 0.7
"""What part of a sentence is letters and blanks; a Chinese character is two."""

_NUMBER = re.compile(r"\d{2,}|\d[.,:/]\d")
_NAME = re.compile(
    r"(?<=[\w,;:] )(?!I\b)[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+ (?:(?:van|von|de|der|di|la|le) )?[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+"
)
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_JOINED = re.compile(r"\b\w+(?:[_/]\w+)+|\b\w+(?:-\w+)*-\d\w*")


def states_value(sentence: str) -> bool:
    """Whether it is a short statement that gives something a value (a date, a name, an amount, an address)."""
    return _is_statement(sentence) and bool(slots.parse_clauses(sentence) or cues.OWN.search(sentence))


def is_exact(sentence: str) -> bool:
    """Whether it is a short statement with something in it that is of no use when a character is wrong."""
    return has_figure(sentence) or (
        _is_statement(sentence)
        and (_JOINED.search(sentence) is not None or next(find_identifiers(sentence), None) is not None)
    )


def has_figure(sentence: str) -> bool:
    """Whether it is a short statement with a number or a person's name in it."""
    return _is_statement(sentence) and any(form.search(sentence) for form in (_NUMBER, _NAME))


def weight_of(sentence: str) -> int:
    """What a user's sentence without a cue weighs; 0 if it is no statement (a question, a heading, two words)."""
    if states_value(sentence):
        return VALUE
    if is_exact(sentence):
        return EXACT
    return PLAIN if _is_statement(sentence) and is_prose(sentence) and not _is_courtesy(sentence) else 0


def is_prose(sentence: str) -> bool:
    """Whether most of it is letters, as in a sentence and not in code, paths, tables or output."""
    wide = len(WIDE.findall(sentence))
    letters = sum(letter.isalpha() or letter == " " for letter in sentence) + wide
    return letters >= LETTERS * (len(sentence) + wide)


def _is_courtesy(sentence: str) -> bool:
    """Whether it is so short, or so soft, that nobody misses it."""
    words = len(sentence.split()) + (0 if sentence.isascii() else len(WIDE.findall(sentence)) // 2)
    return words < LEAST_WORDS or cues.THANKS.match(sentence) is not None or cues.is_soft(sentence)


def _is_statement(sentence: str) -> bool:
    return (
        len(sentence) <= MOST_CHARS
        and len(sentence.split()) + 4 * (not sentence.isascii()) > 2
        and not sentence.rstrip().endswith(("?", "？", ":", "：", "]"))
    )
