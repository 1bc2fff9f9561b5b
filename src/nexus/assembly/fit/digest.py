"""The digest: one line for each earlier tool call that is worth its tokens, in chunks that only grow.

A cut with the strategy `digest` writes a chunk about the calls that leave with it. Older chunks keep their bytes, until all
of them take too much: then the newest lines go into one new chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from nexus.assembly.fit.lookup import digest_heading
from nexus.assembly.fit.pins import Pinned
from nexus.assembly.fit.window import Window
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens, text_tokens_json
from nexus.types.ledger_entries import DigestChunk, MessageRef, StoredMessage
from nexus.types.message import Message, Text, ToolCall, ToolResult

CHUNK_SHARE = 0.068
DIGEST_SHARE = 0.20
REWRITTEN_SHARE = 0.08
"""Shares of the available tokens: one chunk, all chunks, and what stays where they are written anew."""

SOURCE = "nexus:digest"
UNLIMITED = 1 << 30
_ARGUMENT_CHARS = 120
_LINE_CHARS = 80
_IDENTIFIER = re.compile(
    r"[A-Za-z_~.][\w~-]*(?:[/.:_-]+[\w~-]+)+|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|\b\d[\d,.]*\d\d\b|\b[A-Z0-9]{6,}\b"
)


class _DigestLine(Struct, frozen=True):
    place: MessageRef
    text: str


def grow_digest(
    window: Window,
    index: int,
    available: int,
    limit: int,
    counter: TokenCounter,
    reserved: set[MessageRef],
    escape: Callable[[str], str],
) -> tuple[DigestChunk, ...]:
    """Return the chunks of a cut that keeps everything from message `index` on, in at most `limit` base tokens.

    Lines are chosen by the identifiers that no line before them has, per token. `reserved` are positions of pins, which are
    shown anyway. `escape` makes a text unable to imitate a frame.
    """
    chunks = window.cut.digest if window.cut is not None else ()
    if index < len(window.messages):
        end = max(window.indexes.row_of[index], 0)
    else:
        end = len(window.rows)
    heading = digest_heading(window.rules.lookup)
    lines = [line for line in _lines(window.rows[:end]) if line.place not in reserved]
    identifiers = {name for chunk in chunks for name in _IDENTIFIER.findall(chunk.text)}
    new = _chunk(lines, min(limit, int(CHUNK_SHARE * available)), identifiers, counter, escape, heading)
    tokens = [text_tokens_json(chunk.text, counter) for chunk in (*chunks, *new)]
    if sum(tokens) <= min(limit, int(DIGEST_SHARE * available)):
        return (*chunks, *new)
    every = [_DigestLine(chunk.place, text) for chunk in chunks for text in chunk.text.split("\n")[1:]]
    return _chunk(
        [*every, *lines], min(limit, int(REWRITTEN_SHARE * available)), set(), counter, escape, heading, newest=True
    )


def digest_pins(chunks: Sequence[DigestChunk], counter: TokenCounter) -> list[Pinned]:
    """Return the chunks as pins: user messages in the place of the first of their calls."""
    pins: list[Pinned] = []
    for chunk in chunks:
        message = Message("user", (Text(chunk.text),), source=SOURCE)
        row = StoredMessage(chunk.place, message, message_tokens(message, counter))
        pins.append(Pinned(chunk.place, (row,), UNLIMITED, "digest"))
    return pins


def _chunk(
    lines: Sequence[_DigestLine],
    limit: int,
    identifiers: set[str],
    counter: TokenCounter,
    escape: Callable[[str], str],
    heading: str,
    *,
    newest: bool = False,
) -> tuple[DigestChunk, ...]:
    """Return a chunk of the lines worth most for their tokens, or of the newest; empty if none fits."""
    sizes = [text_tokens_json(escape(line.text), counter) + 1 for line in lines]
    first: dict[str, int] = {}
    for at, line in enumerate(lines):
        for name in _IDENTIFIER.findall(line.text):
            first.setdefault(name, at)
    gains = [0] * len(lines)
    for name, at in first.items():
        gains[at] += name not in identifiers
    if newest:
        order = range(len(lines) - 1, -1, -1)
    else:
        order = sorted(range(len(lines)), key=lambda at: -gains[at] / sizes[at])
    remaining = limit - text_tokens_json(heading, counter)
    chosen: list[int] = []
    for at in order:
        if sizes[at] <= remaining and (newest or gains[at]):
            remaining -= sizes[at]
            chosen.append(at)
    if not chosen:
        return ()
    texts = [escape(lines[at].text) for at in sorted(chosen)]
    return (DigestChunk(lines[min(chosen)].place, "\n".join([heading, *texts])),)


def _lines(rows: Sequence[StoredMessage]) -> Iterator[_DigestLine]:
    """Yield a line for each call of the rows: name, arguments, and the first and last line of its result."""
    results = {result.call_id: result for row in rows for result in row.message.results()}
    for row in rows:
        for call in row.message.calls():
            yield _DigestLine(row.ref, _line(call, results.get(call.id)))


def _line(call: ToolCall, result: ToolResult | None) -> str:
    text = ""
    if result is not None:
        text = "\n".join(part.text for part in result.content if isinstance(part, Text))
    printed = [line for line in text.split("\n") if line.strip()]
    line = f"- {_short(call.name, 60)} {_short(call.arguments, _ARGUMENT_CHARS)} ({_short(call.id, 40)})"
    if printed:
        line += f" → {_short(printed[0], _LINE_CHARS)}"
    if len(printed) > 1:
        line += f" … {_short(printed[-1], _LINE_CHARS)} ({len(printed)} lines)"
    return line


def _short(text: str, chars: int) -> str:
    line = " ".join(text[: chars * 4].split())
    if len(line) <= chars:
        return line
    return f"{line[: chars - 1]}…"
