"""Decoding of a file's bytes, with warnings about anything doubtful."""

from __future__ import annotations

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 4_096

# Data is binary if it has more NUL characters than this share and this number,
_NUL_SHARE, _MIN_NULS = 0.01, 8
# or if it has any, and these and undecodable bytes together are more than this share.
_UNREADABLE_SHARE = 0.2

_DOUBLE = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{1,3}")
"""A UTF-8 character that was decoded as Windows-1252 or Latin-1 (`é` as `Ã©`)."""

_HIDDEN = re.compile("[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]")
"""Characters that only a model sees: changes of direction, zero-width spaces, tag characters."""

_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")
"""The flags of England, Scotland and Wales, which are written with tag characters."""


def decode_text(data: bytes, *, cut: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text with line ends as newlines, and notes about it. `cut`: the data may end inside a character.

    The encoding is the byte order mark's, else UTF-8, or UTF-16 if NUL bytes indicate it. Undecodable bytes become U+FFFD.
    Binary data gives an empty text.
    """
    encoding, start, note = _encoding(data)
    notes = [note] if note else []
    body = memoryview(data)[start:]
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(body, final=not cut)
    except UnicodeDecodeError:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(body, final=not cut)
        name = encoding.upper().removesuffix("-LE").removesuffix("-BE")
        notes.append(f"not valid {name}: undecodable bytes appear as \ufffd (save it as UTF-8)")
    nuls = text.count("\0")
    unreadable = nuls + text.count("\ufffd")
    if nuls > max(len(text) * _NUL_SHARE, _MIN_NULS) or (nuls and unreadable > len(text) * _UNREADABLE_SHARE):
        return "", (f"omitted: not text ({nuls:,} of {len(text):,} characters are NUL)",)
    if nuls:
        text = text.replace("\0", "\ufffd")
        notes.append(f"{nuls:,} NUL characters appear as \ufffd")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, (*notes, *_doubts(text))


def _encoding(data: bytes) -> tuple[str, int, str]:
    """Return the encoding, the length of its byte order mark, and a note."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark), ""
    even, odd = data[0:_SAMPLE_BYTES:2], data[1:_SAMPLE_BYTES:2]
    note = "read as UTF-16 without a byte order mark (save it as UTF-8)"
    # In UTF-16, Western text has a NUL in every second byte: the odd ones in little endian, the even ones in big endian.
    if odd and odd.count(0) > len(odd) * 0.4 and even.count(0) < len(even) * 0.05:
        return "utf-16-le", 0, note
    if odd and even.count(0) > len(even) * 0.4 and odd.count(0) < len(odd) * 0.05:
        return "utf-16-be", 0, note
    return "utf-8", 0, ""


def _doubts(text: str) -> list[str]:
    if text.isascii():
        return []
    notes: list[str] = []
    if piece := next((piece for match in _DOUBLE.finditer(text) if (piece := _double_encoded(match[0]))), ""):
        notes.append(f"probably encoded twice ({piece!r} for {_redecode(piece)!r}); shown unchanged")
    hidden = sorted({match[0] for match in _HIDDEN.finditer(_FLAG.sub("", text))})
    if hidden:
        names = ", ".join(f"U+{ord(char):04X}" for char in hidden[:5]) + (", …" if len(hidden) > 5 else "")
        notes.append(f"invisible characters that a model reads ({names}); shown unchanged")
    return notes


def _double_encoded(piece: str) -> str:
    """Return the beginning of the piece that is one character encoded twice, or ""."""
    return next((piece[:end] for end in range(2, len(piece) + 1) if len(_redecode(piece[:end])) == 1), "")


def _redecode(piece: str) -> str:
    """Return the character whose UTF-8 bytes were decoded as Windows-1252 or Latin-1, or the piece itself."""
    for encoding in ("cp1252", "latin-1"):
        try:
            return piece.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
    return piece
