"""Exact token counts without toktok, which takes half a second and 68 MB to build its vocabulary.

The first process stores the vocabulary in a cache folder, and later ones map it into memory (`vocabulary_file`): at once,
and 4 MB that all processes share. Counting with it takes ten times toktok's time. So a process that counts much goes over
to toktok (`StartingCounter`), and one that runs for long and counts little never does (`SmallCounter`).
"""

from __future__ import annotations

import heapq
import subprocess
import sys
import unicodedata
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from nexus.tokens.counter import TokenCounter, ToktokCounter, get_counter
from nexus.tokens.vocabulary_file import Vocabulary, write_vocabulary

if TYPE_CHECKING:
    import regex

MAX_CHARS = 200_000
"""Number of characters that a process counts before it builds toktok's vocabulary."""

MAX_PIECE_BYTES = 20_000
"""Longest piece that is merged here, in about 60 ms."""

MAX_CACHED_CHARS = 32
"""Longest piece whose count is cached."""

CACHED_PIECES = 16_384
"""Number of pieces whose counts are cached, in about 3 MB."""

BUILD_TIMEOUT_S = 60

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How o200k_base splits a text, by OpenAI's tiktoken (`tiktoken_ext/openai_public.py`)."""

_MERGED = 0
"""End of a part that was merged with the one before it."""

_AMBIGUOUS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u017f")
"""Characters that implementations of regular expressions treat differently: spaces, and a letter equal to `s`."""


class SmallCounter:
    """Counter of `o200k_base` tokens with the same counts as `ToktokCounter`, and without its memory.

    Args:
        toktok: Counts ambiguous texts, those with a word of over `MAX_PIECE_BYTES`, and all if there is no vocabulary.
        folder: Folder of the stored vocabulary. It is created with its parent's permission to write; without that, toktok
            counts everything.
    """

    def __init__(self, toktok: ToktokCounter, folder: Path) -> None:
        self.name: str = toktok.name
        self._toktok = toktok
        self._file = folder / f"{toktok.vocabulary_name}.table"
        self._piece_count = lru_cache(CACHED_PIECES)(self._counted_piece)

    def build(self) -> None:
        """Store the vocabulary if it is missing: in a process of its own, so that toktok's memory goes with it."""
        if self.vocabulary is None:
            program = "import sys; from nexus.tokens.starting_counter import store_vocabulary as s; s(sys.argv[1])"
            command = (sys.executable, "-c", program, str(self._file.parent))
            with suppress(OSError, subprocess.SubprocessError):  # then toktok counts
                subprocess.run(command, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)  # noqa: S603
            self.__dict__.pop("vocabulary", None)

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        if self.vocabulary is None or not _is_unambiguous(text):
            return self._toktok.count(text)
        total = 0
        for piece in self._pattern.findall(text):
            if len(piece) <= MAX_CACHED_CHARS:
                total += self._piece_count(piece)
            elif len(piece) <= MAX_PIECE_BYTES:
                total += self._counted_piece(piece)
            else:
                return self._toktok.count(text)
        return total

    def _counted_piece(self, piece: str) -> int:
        vocabulary = cast("Vocabulary", self.vocabulary)  # `count` has looked
        data = piece.encode()
        if vocabulary.rank(data) is not None:
            return 1
        return _merged(data, vocabulary)

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        import regex

        return regex.compile(_PIECES)

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """The stored vocabulary; None if the file is missing or damaged."""
        try:
            return Vocabulary(self._file)
        except (OSError, ValueError):
            return None


class StartingCounter:
    """Counts a process's first texts by a `SmallCounter`, and all after `MAX_CHARS` characters by toktok."""

    def __init__(self, toktok: ToktokCounter, folder: Path) -> None:
        self.name: str = toktok.name
        self._toktok = toktok
        self._folder = folder
        self._chars = 0
        self._small: SmallCounter | None = SmallCounter(toktok, folder)

    def build(self) -> None:
        """Build toktok's vocabulary now (half a second), so that no later call does."""
        self._small = None
        self._toktok.count("")

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        small = self._small
        self._chars += len(text)
        if small is None or self._chars > MAX_CHARS:
            self._small = None
            return self._toktok.count(text)
        if small.vocabulary is None:
            self._small = None
            with suppress(OSError):  # the next process is as slow as this one
                store_vocabulary(self._folder)
            return self._toktok.count(text)
        return small.count(text)


def store_vocabulary(folder: str | Path) -> None:
    """Write toktok's vocabulary of `o200k_base` into a folder. Raises OSError."""
    toktok = ToktokCounter()
    ranks = toktok.vocabulary()
    write_vocabulary(Path(folder) / f"{toktok.vocabulary_name}.table", sorted(ranks, key=ranks.__getitem__))


@cache
def starting_counter(folder: Path) -> TokenCounter:
    """Return the process's counter with a vocabulary in this folder; without toktok, the best other one."""
    counter = get_counter()
    if isinstance(counter, ToktokCounter):
        return StartingCounter(counter, folder)
    return counter


@cache
def small_counter(folder: Path) -> TokenCounter:
    """Return the process's counter that takes little memory; without toktok, the best other one."""
    counter = get_counter()
    if isinstance(counter, ToktokCounter):
        return SmallCounter(counter, folder)
    return counter


def _is_unambiguous(text: str) -> bool:
    """Return True if the text has only characters that every version of Unicode from Python's on puts in one class."""
    if text.isascii():
        return _AMBIGUOUS.isdisjoint(text)
    characters = set(text)
    return _AMBIGUOUS.isdisjoint(characters) and not any(
        unicodedata.category(character) in ("Cn", "Cs") for character in characters
    )


def _merged(data: bytes, vocabulary: Vocabulary) -> int:
    """Return the number of tokens of one piece: neighbors are merged, lowest rank first.

    A part is known by the place of its first byte. A pair that is waiting is stale if one of its parts has been merged.
    """
    length = len(data)
    ends = [*range(1, length + 1)]
    parts_before = [*range(-1, length - 1)]
    pairs: list[tuple[int, int, int]] = []

    def add(start: int, end: int) -> None:
        rank = vocabulary.rank(data[start:end])
        if rank is not None:
            heapq.heappush(pairs, (rank, start, end))

    for start in range(length - 1):
        add(start, start + 2)
    tokens = length
    while pairs:
        _, start, end = heapq.heappop(pairs)
        middle = ends[start]
        if middle in (_MERGED, length) or ends[middle] != end:
            continue
        ends[start] = end
        ends[middle] = _MERGED
        tokens -= 1
        if end < length:
            parts_before[end] = start
            add(start, ends[end])
        if start:
            add(parts_before[start], end)
    return tokens
