"""A vocabulary in a file that processes share: a table of hashes over the tokens, mapped into memory and never decoded.

As a dictionary the vocabulary of `o200k_base` takes 23 MB in each process, as this file 4 MB in all of them together.

The file is the SHA-256 of the rest, the numbers of slots and tokens, the slots of the hash table, where each token begins,
and the tokens by rank. Numbers have 4 bytes in the machine's order. A slot holds a rank plus one; 0 is a free slot.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import zlib
from array import array
from itertools import accumulate
from pathlib import Path

_SHA256_BYTES = 32
_NUMBER_BYTES = 4
_MAX_FILE_BYTES = 32_000_000
_MIN_SLOTS_PER_TOKEN = 2


class Vocabulary:
    """The ranks of tokens. Raises OSError or ValueError for a file that holds no whole vocabulary."""

    def __init__(self, file: Path) -> None:
        data = _mapped(file)
        view = memoryview(data)
        content = view[_SHA256_BYTES:]
        if hashlib.sha256(content).digest() != data[:_SHA256_BYTES]:
            raise ValueError(f"{file} is damaged")
        slots, tokens = content[: 2 * _NUMBER_BYTES].cast("I")
        tokens_start = (2 + slots + tokens + 1) * _NUMBER_BYTES
        numbers = content[2 * _NUMBER_BYTES : tokens_start].cast("I")
        if len(numbers) != slots + tokens + 1:
            raise ValueError(f"{file} is from a machine with another order of bytes")
        self._slots = numbers[:slots]
        self._last_slot = slots - 1
        self._starts = numbers[slots:]
        self._tokens = content[tokens_start:]

    def rank(self, token: bytes) -> int | None:
        """Return the rank of a token, None for bytes that are no token."""
        slot = zlib.crc32(token) & self._last_slot
        while held := self._slots[slot]:
            if bytes(self._tokens[self._starts[held - 1] : self._starts[held]]) == token:
                return held - 1
            slot = (slot + 1) & self._last_slot
        return None


def write_vocabulary(file: Path, tokens: list[bytes]) -> None:
    """Write a vocabulary, its tokens in the order of their ranks. Raises OSError; a file that was there is replaced."""
    slot_count = 1
    while slot_count < _MIN_SLOTS_PER_TOKEN * len(tokens):
        slot_count *= 2
    slots = array("I", bytes(_NUMBER_BYTES * slot_count))
    for rank, token in enumerate(tokens):
        slot = zlib.crc32(token) % slot_count
        while slots[slot]:
            slot = (slot + 1) % slot_count
        slots[slot] = rank + 1
    starts = array("I", [0, *accumulate(map(len, tokens))])
    head = array("I", [slot_count, len(tokens)])
    content = b"".join((head.tobytes(), slots.tobytes(), starts.tobytes(), *tokens))
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_bytes(hashlib.sha256(content).digest() + content)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _mapped(file: Path) -> mmap.mmap:
    """Return a file's bytes. Raises OSError and ValueError, also for a special file or one too large for a vocabulary."""
    with file.open("rb") as opened:
        info = os.fstat(opened.fileno())
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_FILE_BYTES:
            raise OSError(f"{file} is no vocabulary")
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
