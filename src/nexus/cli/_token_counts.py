"""Token counts for a process of one command: exact, without the half second that toktok takes to build its vocabulary.

The first command that counts stores the vocabulary in `NEXUS_HOME/cache`, if the folder of Nexus exists; later ones read
it in a tenth of the time and count short texts here. Whatever is long, or may be split differently, is counted by toktok.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nexus.tokens.counter import TokenCounter, ToktokCounter, get_counter
from nexus.workspace.files.containment import read_file
from nexus.workspace.files.reader import home_folder

if TYPE_CHECKING:
    import regex

MAX_CHARS = 200_000
"""Characters that a process counts here; from then on toktok is the faster one."""

MAX_PIECE_BYTES = 100
"""Longest piece that is merged here: the time grows with the square of its length."""

MAX_FILE_BYTES = 8_000_000
SHA256_BYTES = 32

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PIECES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How o200k_base splits a text, by OpenAI's tiktoken (`tiktoken_ext/openai_public.py`)."""

_AMBIGUOUS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u017f")
"""Characters that implementations of regular expressions treat differently: spaces, and a letter equal to `s`."""


class OneShotCounter:
    """Counts by `o200k_base`, equal to those of `ToktokCounter`."""

    def __init__(self, toktok: ToktokCounter, home: Path) -> None:
        self.name: str = toktok.name
        self._toktok, self._home, self._chars = toktok, home, 0

    def count(self, text: str) -> int:
        """Return the exact number of tokens."""
        self._chars += len(text)
        if self._chars > MAX_CHARS or not self._ranks or not _is_unambiguous(text):
            self._chars = MAX_CHARS  # toktok's vocabulary is built now, so that it counts the rest
            return self._toktok.count(text)
        total, ranks = 0, self._ranks
        for piece in self._pattern.findall(text):
            data = piece.encode()
            if data in ranks:
                total += 1
            elif len(data) <= MAX_PIECE_BYTES:
                total += _merged(data, ranks)
            else:
                self._chars = MAX_CHARS
                return self._toktok.count(text)
        return total

    @cached_property
    def _pattern(self) -> regex.Pattern[str]:
        import regex

        return regex.compile(_PIECES)

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        """The vocabulary's tokens with their ranks, from the file; empty if there is no valid one, and it is written."""
        file = self._home / "cache" / f"{self._toktok.vocabulary_name}.msgpack"
        with suppress(Exception):  # a missing or damaged file is replaced
            data = read_file(file, MAX_FILE_BYTES)
            if hashlib.sha256(data[SHA256_BYTES:]).digest() == data[:SHA256_BYTES]:
                return msgspec.msgpack.decode(data[SHA256_BYTES:], type=dict[bytes, int])
        if self._home.is_dir():
            with suppress(OSError):  # the next command is as slow as this one
                _write(file, msgspec.msgpack.encode(self._toktok.vocabulary()))
        return {}


def one_shot_counter() -> TokenCounter:
    """Return the counter for a command."""
    counter = get_counter()
    return OneShotCounter(counter, home_folder()) if isinstance(counter, ToktokCounter) else counter


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


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_bytes(hashlib.sha256(data).digest() + data)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
