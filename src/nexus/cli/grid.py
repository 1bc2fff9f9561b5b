"""The picture of a window: a grid of what fills it, and a table by layer and block."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from nexus.assembled import AssembledContext, Item
from nexus.layer import LAYERS

ROWS, COLUMNS = 8, 60
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
        "items": msgspec.to_builtins(ctx.items),
        "layers": {layer: sum(item.tokens for item in ctx.items if item.layer == layer) for layer in LAYERS},
        "free": budget.remaining,
        "cacheBoundary": msgspec.to_builtins(ctx.prefix),
        "cut": msgspec.to_builtins(ctx.cut),
        "warnings": msgspec.to_builtins(ctx.warnings),
    }


def picture(ctx: AssembledContext, *, plain: bool = False) -> Group:
    """Grid, legend, table and notes, to be printed by rich."""
    budget = ctx.token_budget
    title = Text(
        f"{ctx.session_label}: next call to {ctx.model} ({ctx.provider}), profile {ctx.manifest.profile}", "bold"
    )
    share = 100 * budget.used.total / max(budget.available, 1)
    used = Text(f"{budget.used.total:,} of {budget.available:,} available tokens used ({share:.1f} %)\n")
    return Group(title, used, _grid(ctx, plain=plain), Text(), _table(ctx), *_notes(ctx))


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
    parts = [(item.layer, item.tokens) for item in sorted(ctx.items, key=lambda item: order[item.slot])]
    reserve = 0 if budget.direct else budget.reserve_response + budget.reserve_tools
    return [*parts, ("free", max(budget.remaining, 0)), ("reserve", reserve)]


def _grid(ctx: AssembledContext, *, plain: bool) -> Text:
    parts = _window_tokens(ctx)
    total = max(sum(tokens for _, tokens in parts), 1)
    cells = ROWS * COLUMNS
    out, spent, drawn = Text(), 0, 0
    for kind, tokens in parts:
        spent += tokens
        end = round(cells * spent / total)
        for _ in range(drawn, end):
            out.append((_LETTERS if plain else _CELLS)[kind], None if plain else _COLOURS[kind])
            drawn += 1
            if drawn % COLUMNS == 0 and drawn < cells:
                out.append("\n")
    out.append("\n\n")
    for kind, cell in (_LETTERS if plain else _CELLS).items():
        if kind == "reserve" and ctx.token_budget.direct:
            continue
        out.append(cell, None if plain else _COLOURS[kind])
        out.append(f" {kind}  ")
    return out


def _table(ctx: AssembledContext) -> Table:
    budget = ctx.token_budget
    whole = max(budget.available, 1)
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "block", "origin", "tokens", "share"):
        table.add_column(name, justify="right" if name in ("tokens", "share") else "left", no_wrap=name != "block")
    slots: dict[str, list[Item]] = {"system": [], "history": [], "current": []}
    for item in ctx.items:
        slots[item.slot].append(item)
    for slot in ("system", "history"):
        _rows(table, slots[slot], whole)
    stable = f"cache boundary: {ctx.prefix.stable_tokens:,} tokens above"
    table.add_row("", Text(stable, "dim"), Text(_boundary(ctx), "dim"), "", "")
    _rows(table, slots["current"], whole)
    table.add_row("", "free", "", f"{budget.remaining:,}", f"{100 * budget.remaining / whole:.1f} %")
    if not budget.direct:
        table.add_row("", "reserved for the response", "", f"{budget.reserve_response:,}", "")
        table.add_row("", "reserved for tool results", "", f"{budget.reserve_tools:,}", "")
    return table


def _rows(table: Table, items: list[Item], whole: int) -> None:
    for item in items:
        name = (
            f"{item.name} ({item.messages:,} message{'s' if item.messages != 1 else ''})"
            if item.slot == "history" and item.messages
            else item.name
        )
        layer = Text(item.layer, _COLOURS[item.layer])
        table.add_row(layer, name, item.origin, f"{item.tokens:,}", f"{100 * item.tokens / whole:.1f} %")


def _boundary(ctx: AssembledContext) -> str:
    return {"first": "first call", "extends": "extends the last call", "broken": "moved"}[ctx.prefix.state]


def _notes(ctx: AssembledContext) -> list[Text]:
    notes = [Text(f"The prefix moved because {cause}.", "yellow") for cause in ctx.prefix.causes]
    if ctx.cut:
        text = (
            f"This call cuts {ctx.cut.left_out_messages:,} older messages (about {ctx.cut.left_out_tokens:,} tokens)."
        )
        notes.append(Text(text, "yellow"))
    notes.extend(Text(f"{note.origin}: {note.text}", "yellow") for note in ctx.warnings)
    return notes
