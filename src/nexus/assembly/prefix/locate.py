"""Where a broken prefix breaks, and what that costs: the first thing that differs, the tokens lost, their price.

A call that extends the last one asks for none of this. What cannot be known without the earlier prompt counts as lost, so
that what is called stable is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from msgspec.structs import replace

from nexus.assembly.fit.window import Window
from nexus.assembly.prefix.compare import same_pins
from nexus.context import PrefixReport
from nexus.providers.prompt_cache import price_of_break
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens, text_tokens_json
from nexus.tokens.model import Model
from nexus.types.block import Block
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message
from nexus.types.sanitize import sanitize_text

_ALL = (
    ("model", "the model"),
    ("render", "the rendering"),
    ("tools", "the tool definitions"),
    ("config", "the settings"),
)
"""What stands before everything else, or changes all of it."""


@dataclass(frozen=True, slots=True)
class PrefixCosts:
    """What the two prompts are measured by, in base tokens. `blocks` are the system slot's tokens and UTF-8 bytes by name.

    `ahead` are those of the blocks that are messages.

    `earlier` are the messages of the earlier prompt, from its opening on; None if they are not at hand.
    """

    tools: int
    system: int
    blocks: Mapping[str, tuple[int, int]]
    window: Window
    earlier: Sequence[Message] | None
    counter: TokenCounter
    factor: float
    model: Model
    current: int = 0
    preamble_blocks: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


def block_key(block: Block) -> str:
    """A system block's name in a manifest."""
    return f"{block.source} ({block.name})"


def block_tokens(blocks: Iterable[Block], counter: TokenCounter) -> dict[str, tuple[int, int]]:
    """The base tokens and UTF-8 bytes of the system slot's blocks, by name."""
    texts = ((block_key(block), sanitize_text(block.text)) for block in blocks)
    return {name: (text_tokens_json(text, counter), len(text.encode())) for name, text in texts}


def pinned_places(window: Window, spared: Iterable[int] = ()) -> tuple[tuple[int, int, int], ...]:
    """The pins that are shown before the window's first message, and results that are whole for a pin: see `pins_shown`.

    `spared` are the event's messages, by number, that are such results.
    """
    return tuple(sorted(window.visible_pins() | {(window.head + 1, at, 0) for at in spared}))


def previously_visible(before: Mapping[str, Any], window: Window, mark: Entry | None) -> list[Message] | None:
    """The messages of the last call, from the window as it was before a cut; None where that window is another one.

    Only those up to its head where other turns came between, or where results that it lacked may have come.
    """
    now = {"cut": window.cut.number if window.cut else 0, "mark": mark.seq if mark else 0}
    now |= {
        "pins": pinned_places(window),
        "pin_kinds": [pin.kind for pin in window.hidden_pins()],
        "first": (window.first.seq, window.first.ord),
    }
    head = int(before.get("head", 0))
    same = all(before.get(name) == now[name] for name in ("cut", "mark")) and _same_places(before, now)
    if not same or window.hash_at(head) not in (None, bytes.fromhex(before.get("head_hash", ""))):
        return None
    messages = [*window.opening, *window.messages]
    between = before.get("recorded_at", 0) != head + 1 or (before.get("supplied") and not before.get("answered", True))
    return messages[: _until(window, head)[0]] if between else messages


def locate_break(
    report: PrefixReport, before: Mapping[str, Any], now: Mapping[str, Any], ground: PrefixCosts
) -> PrefixReport:
    """The report of a broken prefix with the first thing that differs, what stays stable, what is lost, and its price.

    `byte` is where a block of the system slot begins that differs, in the slot's text; None for anything else.
    """
    at, stable, byte = _first(before, now, ground)
    ahead = sum(tokens for tokens, _ in ground.preamble_blocks.values())
    shown = ground.tools + ground.system + ahead + ground.window.tokens
    lost = int(max(min(int(before.get("base", 0)), shown) - stable, 0) * ground.factor)
    price = price_of_break(lost, ground.model, prompt_tokens=int((shown + ground.current) * ground.factor))
    return replace(
        report,
        at=at,
        byte=byte,
        stable_tokens=int(stable * ground.factor),
        lost_tokens=lost,
        price=None if price is None else float(price),
    )


def _first(before: Mapping[str, Any], now: Mapping[str, Any], ground: PrefixCosts) -> tuple[str, int, int | None]:
    """The first thing that differs, the base tokens before it, and the byte of the system slot where it begins."""
    for name, what in _ALL:
        if before.get(name) != now[name]:
            return what, 0, None
    if before.get("system") != now["system"]:
        return _block(before.get("blocks", {}), now["blocks"], ground)
    fixed = ground.tools + ground.system
    if list(before.get("ahead", {}).items()) != list(now.get("ahead", {}).items()):
        return _ahead(before.get("ahead", {}), now.get("ahead", {}), ground)
    fixed += sum(tokens for tokens, _ in ground.preamble_blocks.values())
    if before.get("form", "roles") != now.get("form", "roles"):
        return "the beginning of the history", fixed, None
    if ground.earlier is not None:
        index, tokens = common_prefix_tokens(ground.earlier, ground.window, ground.counter)
        return f"message {index + 1} of the history", fixed + tokens, None
    moved = any(before.get(name) != now[name] for name in ("mark", "cut")) or not _same_places(before, now)
    head = int(before.get("head", 0))
    if moved or ground.window.hash_at(head) not in (None, bytes.fromhex(before.get("head_hash", ""))):
        return "the beginning of the history", fixed, None
    index, tokens = _until(ground.window, head)
    return f"message {index + 1} of the history", fixed + tokens, None


def common_prefix_tokens(earlier: Sequence[Message], window: Window, counter: TokenCounter) -> tuple[int, int]:
    """How many messages a window begins with that an earlier prompt began with too, and their base tokens."""
    index = 0
    for old, new in zip(earlier, chain(window.opening, window.messages), strict=False):
        if old is not new and old != new:
            break
        index += 1
    opening = len(window.opening)
    if index < opening:
        shown = window.opening[:index]
        return index, sum(window.weight(message, message_tokens(message, counter)) for message in shown)
    return index, window.opening_tokens + window.sums[index - opening]


def _block(before: Mapping[str, str], now: Mapping[str, str], ground: PrefixCosts) -> tuple[str, int, int | None]:
    tokens, byte = ground.tools, 0
    old = iter(before.items())
    for name, digest in now.items():
        if next(old, None) != (name, digest):
            return f"{name} in the system slot", tokens, byte
        tokens += ground.blocks[name][0]
        byte += ground.blocks[name][1] + len("\n\n")
    return "the end of the system slot", tokens, byte


def _ahead(before: Mapping[str, str], now: Mapping[str, str], ground: PrefixCosts) -> tuple[str, int, int | None]:
    """The first block between system slot and conversation that differs."""
    tokens, old = ground.tools + ground.system, iter(before.items())
    for name, digest in now.items():
        if next(old, None) != (name, digest):
            return f"{name} before the conversation", tokens, None
        tokens += ground.preamble_blocks[name][0]
    return "the end of the blocks before the conversation", tokens, None


def _same_places(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the same messages stand before what is shown, and it begins at the same one."""
    return same_pins(before, now) and list(before.get("first", ())) == list(now["first"])


def _until(window: Window, head: int) -> tuple[int, int]:
    """How many messages stand for entries up to `head`, the opening among them, and their base tokens."""
    rows = bisect_right(window.rows, head, key=lambda row: row.place.seq)
    index = bisect_left(window.shown_by, rows)
    return len(window.opening) + index, window.opening_tokens + window.sums[index]
