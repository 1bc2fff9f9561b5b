"""Sentences of a text: split, put on one line, weighed as statements, and dropped when a later one replaces them.

All steps take time linear in the text. Only the beginning and end of a very long text are searched.

A statement is replaced by a later one with the same subject and another value. A clause is parsed into values of a kind
(money, date, port, zone, person, branch, …) and the words that name their subject. Two clauses have one subject when
these words agree or, after a word of change ("now", "moved to"), when one set of words contains the other. Different
scopes (project budget, travel budget) stay apart. Two prohibitions with different names (two ports never to use) both
stay in force. It uses neither a grammar nor a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from nexus.summarization.extractive import patterns
from nexus.summarization.extractive.patterns import KIND_WORDS, SAME_WORD, STOP_WORDS, Kind, cued_kind, find_identifiers
from nexus.text.late_pattern import late_pattern
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
    by_user: bool = False
    """Only a user's statement replaces what a user said."""


# Only this much of a longer text is searched: the middle of a megabyte is pasted data.
_HEAD_CHARS = 40_000
_TAIL_CHARS = 20_000
_SENTENCE_CHARS = 320
_WRAPPED_CHARS = 60

_PROMPT = late_pattern(
    r"\s{0,3}(?:\([\w.-]{1,40}\) )?(?:[\w.-]+@[\w.-]+[ :~/].{0,120}?[$%#>] |\$ \S|PS [A-Z]:\\|[➜❯] )"
)
"""A shell's prompt with a command; what it printed follows up to a blank line."""
_FENCE = late_pattern(r"^[ \t]{0,3}(```|~~~)")
_CONTROL = late_pattern(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
_END = late_pattern(r"(?<=[.!?…])[\"'”’)\]]{0,2}\s+(?=[^\sa-z])|(?<=[。！？；])")
FRAME_MARKERS = (
    "previous conversation summary|context summary|result unavailable|runtime context|session started|tool_use:|"
    "shared_memory|system message"
)
_MARKER = late_pattern(rf"\[(?=\\*(?:{FRAME_MARKERS}))", re.IGNORECASE)
_ABBREVIATION = late_pattern(r"(?:\b(?:e\.g|i\.e|z\.B|d\.h|etc|vs|Mr|Mrs|Dr|No|Nr|approx|ca|cf|p\.ej)\.|^\d{1,3}\.)\Z")
_DAY = late_pattern(r"\b\d{1,2}\.\Z")
_MONTH = late_pattern(
    r"\s*(?:Jan(?:uar)?|Feb(?:ruar)?|März|Apr(?:il)?|Mai|Juni?|Juli?|Aug(?:ust)?|Sept?(?:ember)?|Okt(?:ober)?|"
    r"Nov(?:ember)?|Dez(?:ember)?)\b"
)
_ELEMENT = late_pattern(
    r"<(system-reminder|local-command-[a-z]{1,10}|command-[a-z]{1,10}|ide_[a-z_]{1,30}|environment_details)>"
)
_NUMBER = late_pattern(r"\d{2,}|\d[.,:/]\d")
_NAME = late_pattern(
    r"(?<=[\w,;:] )(?!I\b)[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+ (?:(?:van|von|de|der|di|la|le) )?[A-ZÄÖÜÉÈÀÁÍÓÚÑÇ][\w’'-]+"
)
_WIDE = late_pattern(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_JOINED = late_pattern(r"\b\w+(?:[_/]\w+)+|\b\w+(?:-\w+)*-\d\w*")

# Weights of a user's statement: with a value, with an exact name or number, any other.
VALUE = 75
EXACT = 55
PLAIN = 36
_STATEMENT_CHARS = 220
_STOPS = (".", "!", "。", "！")
_CLOSING = "\"'”’)]"
# Words that a statement without exact content must have.
MIN_WORDS = 5
# Share of letters and blanks in prose; a Chinese character counts twice.
_LETTER_SHARE = 0.7


def limit_length(text: str) -> str:
    """Return the text without control characters; of a longer one the first 40,000 and last 20,000 characters."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"
    return _CONTROL.sub(" ", sanitize_text(text))


def strip_markup(text: str) -> str:
    """Return the text without the elements that clients such as Claude Code and Cline add to a user's message.

    A slash command with arguments becomes the line that the user typed.
    """
    pieces: list[str] = []
    command = ""
    at = 0
    while (tag := _ELEMENT.search(text, at)) is not None:
        close = f"</{tag[1]}>"
        end = text.find(close, tag.end())
        pieces.append(text[at : tag.start()])
        content = text[tag.end() : end if end >= 0 else len(text)].strip()
        if tag[1] == "command-name":
            command = content
        elif tag[1] == "command-args" and content:
            pieces.append(f"{command} {content}".strip())
        at = end + len(close) if end >= 0 else len(text)
    return "".join([*pieces, text[at:]])


def truncate_line(text: str, limit_chars: int = _SENTENCE_CHARS) -> str:
    """Return the text on one line of at most so many characters, ellipsis included, with frame tags defused."""
    line = " ".join(text.split())
    if len(line) > limit_chars:
        cut = line[: limit_chars - 2].rfind(" ", limit_chars * 2 // 3)
        line = f"{line[: cut if cut > 0 else limit_chars - 2].rstrip(' ,;:')} …"
    if "[" in line:
        return _MARKER.sub("(", line)
    return line


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text outside fenced code, pasted terminal output and text between lines of three quotes."""
    fenced = quoted = in_terminal = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.count('"""') == 1:
            quoted = not quoted
        elif not fenced and not quoted:
            in_terminal = bool(line.strip()) and (in_terminal or _PROMPT.match(line) is not None)
            if not in_terminal:
                yield line


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text outside fenced code and tables, each on one line and truncated."""
    paragraph: list[str] = []
    for line in (*lines(text), ""):
        bare = line.strip()
        separate = not bare or bare[0] in "-*+#>|•" or bare[:2].rstrip(".)").isdigit() or bare.endswith((":", "："))
        # A long line was probably wrapped: its sentence continues on the next line.
        if separate or len(bare) < _WRAPPED_CHARS:
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


def states_value(sentence: str) -> bool:
    """Return true for a short statement with a value (a date, a name, an amount, an address)."""
    return _is_statement(sentence) and bool(parse_clauses(sentence) or patterns.SELF_STATEMENT.search(sentence))


def has_figure(sentence: str) -> bool:
    """Return true for a short statement with a number or a person's name."""
    return _is_statement(sentence) and any(form.search(sentence) for form in (_NUMBER, _NAME))


def weight_of(sentence: str) -> int:
    """Return the weight of a user's sentence without a cue; 0 for questions, requests, headings and courtesies.

    A statement about code, a fault or the moment has no weight either: it does not stay true.
    """
    if not _is_statement(sentence):
        return 0
    if patterns.is_order(sentence) or patterns.is_volatile(sentence):
        return 0
    if states_value(sentence):
        return VALUE
    if patterns.is_request(sentence):
        return 0
    if has_figure(sentence) or _JOINED.search(sentence) or next(find_identifiers(sentence), None) is not None:
        return EXACT
    if word_count(sentence) < MIN_WORDS or patterns.THANKS.match(sentence) or patterns.is_soft(sentence):
        return 0
    if is_prose(sentence):
        return PLAIN
    return 0


def word_count(sentence: str) -> int:
    """Return the number of words; two Chinese, Japanese or Korean characters count as one."""
    return len(sentence.split()) + _wide_count(sentence) // 2


def is_prose(sentence: str) -> bool:
    """Return true if most characters are letters, unlike in code, paths, tables or output."""
    wide_count = _wide_count(sentence)
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ") + wide_count
    return letters >= _LETTER_SHARE * (len(sentence) + wide_count)


def _wide_count(text: str) -> int:
    if text.isascii():
        return 0
    return len(_WIDE.findall(text))


def ends_sentence(line: str) -> bool:
    """Return true for a line that ends with the end of a sentence and at most two closing marks."""
    line = line.rstrip()
    return line.rstrip(_CLOSING).endswith(_STOPS) and line[-3:].rstrip(_CLOSING) != ""


def is_full_sentence(sentence: str) -> bool:
    """Return true for a sentence of words with its last punctuation mark, unlike a line of output or of a list."""
    return ends_sentence(sentence) and is_prose(sentence)


def _is_statement(sentence: str) -> bool:
    return (
        len(sentence) <= _STATEMENT_CHARS
        # Chinese has no spaces between words: two pieces of it are enough.
        and len(sentence.split()) + 4 * (not sentence.isascii()) > 2
        and not sentence.rstrip().endswith(("?", "？", ":", "：", "]"))
    )


# Kinds that a conversation usually has one value of: the words may be missing on one side.
_SINGLETONS = frozenset(
    {"zone", "units", "tone", "length", "branch", "language", "indent", "port", "hash", "code language"}
)
# Kinds of which several may be forbidden at once. A new amount or secret code replaces the old one instead.
_NAMES = frozenset({"port", "place", "email", "branch", "version", "hash", "language", "code language", "person"})
_FORBIDS = late_pattern(
    r"\b(?:never|do not|don['’]t|must(?: not|n['’]t)|may not|avoid|niemals|nie|nicht|keine?n?|jamais|n['’e] ?\w+ pas|nunca|no "
    r"(?:uses|toques|cambies|borres|modifiques))\b|不要|不能|不得|不可|禁止|切勿|请勿",
    re.IGNORECASE,
)
_CLAUSE = late_pattern(
    r"[;；]\s*|,\s+(?:and|but|und|et|y)\s+|\s+(?:and|but|und)\s+(?=(?:must|never|do|don|always|keep|use|stick)\b)|(?<=[.!])\s+|，|。"
)
_WORDS = late_pattern(r"[^\W\d_][\w'’-]*|[\u3400-\u9fff]+")
_CJK = late_pattern(r"[\u3400-\u9fff]")
_CJK_STOP = late_pattern(r"[的了是为在和与把将用到成改现这那个我你他们请要应该已经新旧吧于]+")
_ENDING = late_pattern(r"(?<=....)(?:ies|ing|ed|ly|es|s)\Z")
# Clauses of a kind that a later one is compared with: bounds the time for a text of any length.
_LIVE_CLAUSES = 200


class Clause(Struct, frozen=True):
    """A clause with its values by kind, the words that name their subject, and whether it announces a change."""

    text: str
    values: dict[str, frozenset[str]]
    words: frozenset[str]
    change: bool


@lru_cache(maxsize=4_096)  # a sentence is weighed, compared and searched for identifiers
def parse_clauses(sentence: str) -> tuple[Clause, ...]:
    """Return the clauses of a sentence that contain a value."""
    change = patterns.CHANGE.search(sentence) is not None
    clauses = (_parse_clause(part, change=change) for part in _CLAUSE.split(sentence) if part)
    return tuple(clause for clause in clauses if clause is not None)


def _parse_clause(text: str, *, change: bool) -> Clause | None:
    values: dict[str, frozenset[str]] = {}
    bare = text
    for kind, form, needs in patterns.VALUES:
        if not needs.search(text):
            continue
        # Tone and length share words ("terse" is both), so they are searched in the whole clause.
        source = text if kind in ("length", "tone") else bare
        matches = frozenset(re.sub(r"[\s,]+", "", hit[0].lower()).rstrip(".") for hit in form.finditer(source))
        if matches:
            values[kind] = matches
            bare = form.sub(" ", bare)
    if not values:
        return None
    ignored = STOP_WORDS.union(*(KIND_WORDS.get(kind, frozenset()) for kind in values))
    words = subject_words(bare, ignored)
    if "port" in values:
        words -= {"端口"}
    return Clause(text, values, words, change)


def subject_words(text: str, ignored: frozenset[str] = STOP_WORDS) -> frozenset[str]:
    """Return the words of a text that name its subject, without their endings."""
    words: set[str] = set()
    for hit in _WORDS.finditer(text.lower()):
        if _CJK.match(hit[0]):
            words.update(piece for piece in _CJK_STOP.split(hit[0]) if piece)
            continue
        token = hit[0].replace("’s", "").replace("'s", "")
        for part in (token,) if token in SAME_WORD else token.split("-"):
            stem = SAME_WORD.get(part, _ENDING.sub("", part))
            if part not in ignored and stem not in ignored and len(part) > 1:
                words.add(stem)
    return frozenset(words)


def _replaces(later: Clause, old: Clause) -> bool:
    """Return true if the later clause gives another value to the subject of the old one."""
    kinds = [kind for kind in later.values if kind in old.values and not later.values[kind] & old.values[kind]]
    if not kinds:
        return False
    forbidding = _FORBIDS.search(later.text) is not None and _FORBIDS.search(old.text) is not None
    if forbidding and not later.change and _NAMES.issuperset(kinds):
        return False
    has_one_value = not _SINGLETONS.isdisjoint(kinds)
    if later.words == old.words:
        return bool(later.words) or later.change or has_one_value
    if not later.words or not old.words:
        return has_one_value
    # A conversation has one style at a time, whatever words surround it.
    if not {"tone", "units", "length", "indent"}.isdisjoint(kinds):
        return True
    if later.words <= old.words or old.words <= later.words:
        return later.change or "progress" in kinds or min(len(later.words), len(old.words)) > 1
    return later.change and not {"branch", "zone"}.isdisjoint(kinds)


def superseded_sentences(sentences: Sequence[str]) -> dict[int, str]:
    """Return the index of every sentence that a later one replaces in part, with the rest of it (often empty)."""
    live: dict[str, list[tuple[int, Clause]]] = {}
    rests: dict[int, str] = {}
    for index, sentence in enumerate(sentences):
        for clause in parse_clauses(sentence):
            for kind in clause.values:
                older_clauses = live.get(kind, [])
                live_clauses: list[tuple[int, Clause]] = []
                for at, old in older_clauses:
                    if at < index and _replaces(clause, old):
                        rests[at] = _rest_without(old, rests.get(at, sentences[at]))
                    else:
                        live_clauses.append((at, old))
                live[kind] = [*live_clauses[-(_LIVE_CLAUSES - 1) :], (index, clause)]
    return rests


def _rest_without(clause: Clause, sentence: str) -> str:
    """Return a sentence without a clause; empty unless a constraint is left, which alone means something by itself."""
    parts = (part.strip() for part in _CLAUSE.split(sentence) if part != clause.text)
    rest = " … ".join(part for part in parts if part)
    constrains = len(rest.split()) >= 3 and cued_kind(rest, by_user=True) == "constraint"
    if constrains:
        return rest
    return ""
