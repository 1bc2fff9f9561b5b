"""The picture of a window: a grid of what fills it, and a table by layer and block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from nexus.context import AssembledContext, TokenLine
from nexus.render.console import printable
from nexus.types.block import LAYERS

CELLS, COLUMNS = 480, 60
NARROW = 72
"""Columns of a terminal below which the grid has half as many columns, and the table no origins."""

_COLOURS = {
    "Workspace": "cyan",
    "Persona": "magenta",
    "Session": "blue",
    "Memory": "yellow",
    "Event": "green",
    "free": "bright_black",
    "reserve": "red",
}
_CELLS = dict.fromkeys(LAYERS, "█") | {"free": "·", "reserve": "░"}
_LETTERS = {layer: layer[0] for layer in LAYERS} | {"free": ".", "reserve": "r"}
_FONT_FACE = re.compile(r"@font-face\s*{.*?}\s*", re.DOTALL)


def account(ctx: AssembledContext) -> dict[str, Any]:
    """What the picture shows, as plain values; tokens are the provider's."""
    budget = ctx.token_budget
    return {
        "session": ctx.session_label,
        "model": ctx.model,
        "tokenBudget": budget.to_json(),
        "items": msgspec.to_builtins(ctx.accounting.token_breakdown),
        "layers": {
            layer: sum(item.tokens for item in ctx.accounting.token_breakdown if item.layer == layer)
            for layer in LAYERS
        },
        "free": budget.remaining,
        "cacheBoundary": msgspec.to_builtins(ctx.accounting.prefix),
        "cut": msgspec.to_builtins(ctx.cut),
        "warnings": msgspec.to_builtins(ctx.warnings),
    }


def picture(ctx: AssembledContext, *, plain: bool = False, width: int = 100) -> Group:
    """Grid, legend, table and notes for a terminal of this width, to be printed by rich."""
    budget = ctx.token_budget
    title = _text(
        f"{ctx.session_label}: next call to {ctx.model} ({ctx.provider}), profile {ctx.provenance.manifest.profile}",
        "bold",
    )
    share = 100 * budget.used.total / max(budget.available, 1)
    used = Text(f"{budget.used.total:,} of {budget.available:,} available tokens used ({share:.1f} %)\n")
    columns = COLUMNS if width >= NARROW else COLUMNS // 2
    grid = _grid(ctx, columns, plain=plain)
    return Group(title, used, grid, Text(), _table(ctx, narrow=width < NARROW), *_notes(ctx))


def _text(text: str, style: str = "") -> Text:
    """A text from the ledger or a file, without power over the terminal."""
    return Text(printable(text), style)


def svg_of(ctx: AssembledContext) -> str:
    """The picture as an SVG that needs nothing from elsewhere."""
    console = Console(
        record=True, width=100, file=StringIO(), force_terminal=True, color_system="truecolor", emoji=False
    )
    console.print(picture(ctx))
    return _FONT_FACE.sub("", console.export_svg(title="nexus context"))


def _window_tokens(ctx: AssembledContext) -> list[tuple[str, int]]:
    """The window's parts in sending order: each item by layer, then free space and the reserves."""
    budget = ctx.token_budget
    order = {"system": 0, "history": 1, "current": 2}
    parts = [
        (item.layer, item.tokens) for item in sorted(ctx.accounting.token_breakdown, key=lambda item: order[item.slot])
    ]
    reserve = 0 if budget.direct else budget.reserve_response + budget.reserve_tools
    return [*parts, ("free", max(budget.remaining, 0)), ("reserve", reserve)]


def _grid(ctx: AssembledContext, columns: int, *, plain: bool) -> Text:
    parts = _window_tokens(ctx)
    total = max(sum(tokens for _, tokens in parts), 1)
    out, spent, drawn = Text(), 0, 0
    for kind, tokens in parts:
        spent += tokens
        end = round(CELLS * spent / total)
        for _ in range(drawn, end):
            out.append((_LETTERS if plain else _CELLS)[kind], None if plain else _COLOURS[kind])
            drawn += 1
            if drawn % columns == 0 and drawn < CELLS:
                out.append("\n")
    out.append("\n\n")
    for kind, cell in (_LETTERS if plain else _CELLS).items():
        if kind == "reserve" and ctx.token_budget.direct:
            continue
        out.append(cell, None if plain else _COLOURS[kind])
        out.append(f" {kind}  ")
    return out


def _table(ctx: AssembledContext, *, narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "block", "origin", "tokens", "share"):
        fixed, right = name not in ("block", "origin"), name in ("tokens", "share")
        if name != "origin" or not narrow:
            table.add_column(name, justify="right" if right else "left", no_wrap=fixed, overflow="fold")
    for layer, block, origin, *figures in _rows(ctx):
        table.add_row(layer, block, *([] if narrow else [origin]), *figures)
    return table


def _rows(ctx: AssembledContext) -> Iterator[tuple[Text, Text, Text, str, str]]:
    """The rows of the table: what is sent, in its order, with the cache boundary; then what stays free."""
    budget, nothing = ctx.token_budget, Text()
    whole = max(budget.available, 1)
    yield from (
        _row(item, whole)
        for slot in ("system", "history")
        for item in ctx.accounting.token_breakdown
        if item.slot == slot
    )
    stable = f"cache boundary: {ctx.accounting.prefix.stable_tokens:,} tokens above"
    yield nothing, Text(stable, "dim"), Text(_boundary(ctx), "dim"), "", ""
    yield from (_row(item, whole) for item in ctx.accounting.token_breakdown if item.slot == "current")
    yield nothing, Text("free"), nothing, f"{budget.remaining:,}", f"{100 * budget.remaining / whole:.1f} %"
    if not budget.direct:
        yield nothing, Text("reserved for the response"), nothing, f"{budget.reserve_response:,}", ""
        yield nothing, Text("reserved for tool results"), nothing, f"{budget.reserve_tools:,}", ""


def _row(item: TokenLine, whole: int) -> tuple[Text, Text, Text, str, str]:
    count = item.messages if item.slot == "history" else 0
    held = f" ({count:,} message{'s' if count != 1 else ''})" if count else ""
    share = f"{100 * item.tokens / whole:.1f} %"
    return (
        Text(item.layer, _COLOURS[item.layer]),
        _text(item.name + held),
        _text(item.source),
        f"{item.tokens:,}",
        share,
    )


def _boundary(ctx: AssembledContext) -> str:
    return {"first": "first call", "extends": "extends the last call", "broken": "moved"}[ctx.accounting.prefix.state]


def _notes(ctx: AssembledContext) -> list[Text]:
    notes = [_text(f"The prefix moved because {cause}.", "yellow") for cause in ctx.accounting.prefix.causes]
    if ctx.cut:
        text = (
            f"This call cuts {ctx.cut.left_out_messages:,} older messages (about {ctx.cut.left_out_tokens:,} tokens)."
        )
        notes.append(Text(text, "yellow"))
    notes.extend(_text(f"{note.source}: {note.message}", "yellow") for note in ctx.warnings)
    return notes
