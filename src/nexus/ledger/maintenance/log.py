"""Commits that a damaged write-ahead log hides: SQLite reads a log up to its first invalid frame and ignores the rest.

Format: sqlite.org/fileformat.html, "The Write-Ahead Log".
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

LOG_HEADER = 32
FRAME_HEADER = 24


def hidden_commits(log: Path, page_bytes: int, valid: int) -> int:
    """Return the number of commits of a log that are certainly hidden by damage before them.

    `valid` is the number of frames that SQLite reads; others may have appended since. A commit counts if a frame follows
    it, because SQLite begins a commit when the last one is on the disk. The newest commit never counts: a power loss that
    interrupts it looks the same.
    """
    try:
        stream = log.open("rb")
    except FileNotFoundError:
        return 0
    with stream:
        header = stream.read(LOG_HEADER)
        if len(header) < LOG_HEADER:
            return 0
        order = ">" if header[3] & 1 else "<"
        broken = _checksum(order, header[:24], bytes(8)) != header[24:]
        if broken:  # the header says nothing then; SQLite writes in the machine's order
            order = ">" if sys.byteorder == "big" else "<"
        place = max(valid, 0)
        size = FRAME_HEADER + page_bytes
        stream.seek(LOG_HEADER + max(place - 1, 0) * size)
        first = stream.read(FRAME_HEADER)
        salts = first[8:16] if broken else header[16:24]
        checksum = first[16:] if place else header[24:]
        stream.seek(LOG_HEADER + place * size)
        hidden = 0
        behind_commit = False
        while len(frame := stream.read(size)) == size:
            is_of_log = frame[8:16] == salts
            follows = is_of_log and frame[16:24] == _checksum(order, frame[:8] + frame[FRAME_HEADER:], checksum)
            hidden += follows and behind_commit
            broken = broken or not follows
            behind_commit = broken and is_of_log and any(frame[4:8])
            checksum = frame[16:24]
        return hidden


def _checksum(order: str, data: bytes, before: bytes) -> bytes:
    """Return the checksum of a log's header or frame, which continues the checksum before it."""
    sum_1, sum_2 = struct.unpack(">II", before)
    for word_1, word_2 in struct.iter_unpack(f"{order}II", data):
        sum_1 = (sum_1 + word_1 + sum_2) & 0xFFFFFFFF
        sum_2 = (sum_2 + word_2 + sum_1) & 0xFFFFFFFF
    return struct.pack(">II", sum_1, sum_2)
