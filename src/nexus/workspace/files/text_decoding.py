"""Bytes of a file as text, whatever wrote it; what is doubtful about it is said, and never silently altered."""

from __future__ import annotations

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as the one of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOOKED_AT = 4_096
_NUL_SHARE, _NULS = 0.01, 8
"""With more NUL characters than this share, and this number, it is no text."""

_STRANGE_SHARE = 0.2
"""Nor is it where there are some, and they and the bytes of no character are more than this share."""

_DOUBLE = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{1,3}")
"""What a character of UTF-8 looks like that was read as Windows-1252 or Latin-1 (`é` as `Ã©`)."""

_HIDDEN = re.compile("[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\U000e0000-\U000e007f]")
"""What a person does not see and a model does: changes of direction, spaces without width, tag characters."""

_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007f]+")
"""The flags of England, Scotland and Wales are spelt in tag characters."""


def decode_text(data: bytes, *, cut: bool = False) -> tuple[str, tuple[str, ...]]:
    """The text, its line ends as newlines, and what is to be said about it. `cut`: the data may end inside a character.

    The encoding is that of the byte order mark, else UTF-8, or UTF-16 where NUL bytes show it. What cannot be read
    becomes U+FFFD. Data that is no text gives an empty text.
    """
    encoding, start, told = _encoding(data)
    notes = [told] if told else []
    body = memoryview(data)[start:]
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(body, final=not cut)
    except UnicodeDecodeError:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(body, final=not cut)
        name = encoding.upper().removesuffix("-LE").removesuffix("-BE")
        notes.append(f"is not valid {name}: bytes that could not be read show as \ufffd; save it as UTF-8")
    nul = text.count("\0")
    if nul > max(len(text) * _NUL_SHARE, _NULS) or (nul and _strange(text) > len(text) * _STRANGE_SHARE):
        return "", (f"left out: it is no text ({nul:,} of {len(text):,} characters are NUL)",)
    if nul:
        text = text.replace("\0", "\ufffd")
        notes.append(f"has {nul:,} NUL characters, which show as \ufffd")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, (*notes, *_doubts(text))


def _strange(text: str) -> int:
    return text.count("\0") + text.count("\ufffd")


def _encoding(data: bytes) -> tuple[str, int, str]:
    """The encoding, how many bytes its mark takes, and what to say about it."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark), ""
    even, odd = data[0:_LOOKED_AT:2], data[1:_LOOKED_AT:2]
    told = "is taken for UTF-16 without a byte order mark: save it as UTF-8"
    if odd and odd.count(0) > len(odd) * 0.4 and even.count(0) < len(even) * 0.05:
        return "utf-16-le", 0, told
    if odd and even.count(0) > len(even) * 0.4 and odd.count(0) < len(odd) * 0.05:
        return "utf-16-be", 0, told
    return "utf-8", 0, ""


def _doubts(text: str) -> list[str]:
    """What is odd about a text that is shown as it is."""
    if text.isascii():
        return []
    notes: list[str] = []
    if double := next((found for match in _DOUBLE.finditer(text) if (found := _double(match[0]))), ""):
        notes.append(f"seems to be encoded twice ({double!r} for {_once(double)!r}): it is shown as it is")
    hidden = sorted({found[0] for found in _HIDDEN.finditer(_FLAG.sub("", text))})
    if hidden:
        named = ", ".join(f"U+{ord(one):04X}" for one in hidden[:5]) + (", …" if len(hidden) > 5 else "")
        notes.append(f"has characters that a reader does not see and a model does ({named}): it is shown as it is")
    return notes


def _double(piece: str) -> str:
    """The beginning of the piece that is one character encoded twice; empty if there is none."""
    return next((piece[:end] for end in range(2, len(piece) + 1) if len(_once(piece[:end])) == 1), "")


def _once(piece: str) -> str:
    """The character whose bytes in UTF-8 were read as Windows-1252, or Latin-1; the piece itself if it is none."""
    for encoding in ("cp1252", "latin-1"):
        try:
            return piece.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
    return piece
