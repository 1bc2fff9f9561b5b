"""Token counts for a process's first calls: exact, without the half second that toktok takes to build its vocabulary.

The first process stores the vocabulary in a cache folder; later ones read it in a fifth of the time and count short texts
here. Long texts, and those that may be split differently, are counted by toktok.
"""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nexus.tokens.counter import TokenCounter, ToktokCounter, get_counter

if TYPE_CHECKING:
    import regex

MAX_CHARS = 200_000
"""Number of characters that a process counts here; from then on toktok is faster."""

MAX_PIECE_BYTES = 100
"""Longest piece that is merged here: the time grows with the square of its length."""

MAX_FILE_BYTES = 8_000_000
SHA256_BYTES = 32

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How o200k_base splits a text, by OpenAI's tiktoken (`tiktoken_ext/openai_public.py`)."""

_AMBIGUOUS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u017f")
"""Characters that implementations of regular expressions treat differently: spaces, and a letter equal to `s`."""


class StartingCounter:
    """Counter of `o200k_base` tokens with the same counts as `ToktokCounter`.

    Args:
        toktok: Counts long or ambiguous texts, and all texts after `MAX_CHARS` characters.
        folder: Folder of the stored vocabulary. It is created with its parent's permission to write; without that, toktok
            counts everything.
    """

    def __init__(self, toktok: ToktokCounter, folder: Path) -> None:
        self.name: str = toktok.name
        self._toktok = toktok
        self._folder = folder
        self._chars = 0

    def build(self) -> None:
        """Build toktok's vocabulary now (half a second), so that no later call does."""
        self._count_by_toktok("")

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        self._chars += len(text)
        if self._chars > MAX_CHARS or not _is_unambiguous(text):
            return self._count_by_toktok(text)
        ranks = self._ranks
        if not ranks:
            return self._count_by_toktok(text)
        total = 0
        for piece in self._pattern.findall(text):
            data = piece.encode()
            if data in ranks:
                total += 1
            elif len(data) <= MAX_PIECE_BYTES:
                total += _merged(data, ranks)
            else:
                return self._count_by_toktok(text)
        return total

    def _count_by_toktok(self, text: str) -> int:
        """Count this text and all later ones by toktok. The vocabulary of before is freed: it takes 23 MB."""
        self._chars = MAX_CHARS + 1
        self.__dict__.pop("_ranks", None)
        return self._toktok.count(text)

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        import regex

        return regex.compile(_PIECES)

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        """The vocabulary's tokens with their ranks, from the file; empty if there is no valid one, and it is written."""
        file = self._folder / f"{self._toktok.vocabulary_name}.msgpack"
        with suppress(Exception):  # a missing or damaged file is replaced
            data = _read(file)
            if hashlib.sha256(data[SHA256_BYTES:]).digest() == data[:SHA256_BYTES]:
                return msgspec.msgpack.decode(data[SHA256_BYTES:], type=dict[bytes, int])
        with suppress(OSError):  # the next process is as slow as this one
            _write(file, msgspec.msgpack.encode(self._toktok.vocabulary()))
        return {}


@cache
def starting_counter(folder: Path) -> TokenCounter:
    """Return the process's counter with a vocabulary in this folder; without toktok, the best other one."""
    counter = get_counter()
    if isinstance(counter, ToktokCounter):
        return StartingCounter(counter, folder)
    return counter


def _is_unambiguous(text: str) -> bool:
    """Return True if the text has only characters that every version of Unicode from Python's on puts in one class."""
    if text.isascii():
        return _AMBIGUOUS.isdisjoint(text)
    characters = set(text)
    return _AMBIGUOUS.isdisjoint(characters) and not any(
        unicodedata.category(character) in ("Cn", "Cs") for character in characters
    )


def _merged(data: bytes, ranks: dict[bytes, int]) -> int:
    """Return the number of tokens of one piece: neighbors are merged, lowest rank first."""
    parts = [data[place : place + 1] for place in range(len(data))]
    while len(parts) > 1:
        pairs = ((ranks.get(parts[at] + parts[at + 1]), at) for at in range(len(parts) - 1))
        best = min(((rank, at) for rank, at in pairs if rank is not None), default=None)
        if best is None:
            break
        at = best[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return len(parts)


def _read(file: Path) -> bytes:
    """Return a file's bytes. Raises OSError, also for a special file or one that is too large for a vocabulary."""
    info = file.stat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_FILE_BYTES:
        raise OSError(f"{file} is no vocabulary")
    return file.read_bytes()


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_bytes(hashlib.sha256(data).digest() + data)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
