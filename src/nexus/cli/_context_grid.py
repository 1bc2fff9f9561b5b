"""The image of a context window: a grid of its contents, and a table by layer and block."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from nexus.context import AssembledContext, TokenLine
from nexus.render.console import call_values, printable
from nexus.render.window import conversation_contents
from nexus.tokens.counter import TokenCounter
from nexus.types.block import LAYERS, PREAMBLE, Slot

CELLS = 480
COLUMNS = 60
NARROW = 72
"""Terminal width below which the grid has half as many columns, and the table no sources."""

SLOTS: tuple[Slot, ...] = ("system", PREAMBLE, "history", "current")
"""Slots in sending order."""

_COLORS = {
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


VALUE_CHARS = 36
"""Characters of a call's first argument in a table."""


def _first_value(arguments: str) -> str:
    """Return the first argument of a call, shortened: the end of a path, the beginning of anything else."""
    _, value = next(iter(call_values(arguments) or []), ("", ""))
    text = " ".join(value.strip('"').split())
    if len(text) <= VALUE_CHARS:
        return text
    if text.startswith(("/", "~", "C:")):
        return f"…{text[1 - VALUE_CHARS :]}"
    return f"{text[: VALUE_CHARS - 1]}…"


def contents_table(ctx: AssembledContext, counter: TokenCounter) -> Group:
    """Return tables of the conversation's contents and its largest results, to be printed by rich."""
    contents, largest = conversation_contents(ctx, counter)
    available = max(ctx.token_budget.available, 1)
    table = Table(box=None, pad_edge=False)
    for name, right in (("conversation", False), ("", False), ("count", True), ("tokens", True), ("share", True)):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for part in contents:
        share = f"{100 * part.tokens / available:.1f} %"
        table.add_row(part.kind, _text(part.name), f"{part.count:,}", f"{part.tokens:,}", share)
    results = Table(box=None, pad_edge=False)
    for name, right in (("largest results", False), ("call", False), ("tokens", True)):
        results.add_column(name, justify="right" if right else "left", overflow="fold")
    for result in largest:
        what = f"{result.tool} {_first_value(result.arguments)}".rstrip()
        results.add_row(_text(what), _text(result.call_id), f"{result.tokens:,}")
    return Group(*((Text(), table) if contents else ()), *((Text(), results) if largest else ()))


def context_grid(ctx: AssembledContext, *, call: str = "next call", plain: bool = False, width: int = 100) -> Group:
    """Return grid, legend, table and notes for a terminal of this width, to be printed by rich."""
    budget = ctx.token_budget
    title = _text(
        f"{ctx.session_label}: {call} to {ctx.model} ({ctx.provider}), profile {ctx.provenance.manifest.profile}",
        "bold",
    )
    share = 100 * budget.used.total / max(budget.available, 1)
    used = Text(f"{budget.used.total:,} of {budget.available:,} available tokens used ({share:.1f} %)\n")
    grid = _grid(ctx, COLUMNS if width >= NARROW else COLUMNS // 2, plain=plain)
    notes = [f"The prefix moved because {cause}." for cause in ctx.accounting.prefix.causes]
    if ctx.cut:
        omitted = f"{ctx.cut.omitted_messages:,} older messages (about {ctx.cut.omitted_tokens:,} tokens)"
        notes.append(f"This call omits {omitted}.")
    notes += [f"{warning.source}: {warning.message}" for warning in ctx.warnings]
    table = _table(ctx, narrow=width < NARROW)
    return Group(title, used, grid, Text(), table, *(_text(note, "yellow") for note in notes))


def grid_svg(ctx: AssembledContext, call: str = "next call") -> str:
    """Return the grid as an SVG without external references."""
    console = Console(
        record=True, width=100, file=StringIO(), force_terminal=True, color_system="truecolor", emoji=False
    )
    console.print(context_grid(ctx, call=call))
    # rich names fonts of a CDN; viewers use their own monospaced font instead.
    return _FONT_FACE.sub("", console.export_svg(title="nexus context"))


def _text(text: str, style: str = "") -> Text:
    """Return stored text without control of the terminal."""
    return Text(printable(text), style)


def _grid(ctx: AssembledContext, columns: int, *, plain: bool) -> Text:
    """Return the grid and its legend: layers in sending order, then free space and the reserves."""
    budget = ctx.token_budget
    cells = _LETTERS if plain else _CELLS
    lines = sorted(ctx.accounting.token_breakdown, key=lambda line: SLOTS.index(line.slot))
    if budget.direct:
        reserve = 0
    else:
        reserve = budget.reserve_response + budget.reserve_tools
    parts = [*((line.layer, line.tokens) for line in lines), ("free", max(budget.remaining, 0)), ("reserve", reserve)]
    total = max(sum(tokens for _, tokens in parts), 1)
    out = Text()
    tokens_before = 0
    drawn = 0
    for kind, tokens in parts:
        tokens_before += tokens
        # Rounding the running total, not each part, always fills exactly all cells.
        end = round(CELLS * tokens_before / total)
        for at in range(drawn + 1, end + 1):
            out.append(cells[kind], None if plain else _COLORS[kind])
            if at % columns == 0 and at < CELLS:
                out.append("\n")
        drawn = end
    out.append("\n\n")
    for kind, cell in cells.items():
        if kind != "reserve" or not budget.direct:
            out.append(cell, None if plain else _COLORS[kind])
            out.append(f" {kind}  ")
    return out


def _table(ctx: AssembledContext, *, narrow: bool) -> Table:
    """Return the blocks in sending order, with the cache boundary, then free space and reserves."""
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "block", "source", "tokens", "share"):
        fixed = name not in ("block", "source")
        right = name in ("tokens", "share")
        if name != "source" or not narrow:
            table.add_column(name, justify="right" if right else "left", no_wrap=fixed, overflow="fold")

    def add(layer: Text, block: Text, source: Text, tokens: str, share: str = "") -> None:
        table.add_row(layer, block, *([] if narrow else [source]), tokens, share)

    budget = ctx.token_budget
    empty = Text()
    prefix = ctx.accounting.prefix
    available = max(budget.available, 1)
    lines = ctx.accounting.token_breakdown
    for slot in SLOTS:
        if slot == "current":
            state = {"first": "first call", "extends": "extends the last call", "broken": "moved"}[prefix.state]
            boundary = f"cache boundary: {prefix.stable_tokens:,} tokens above"
            add(empty, Text(boundary, "dim"), Text(state, "dim"), "")
        for line in lines:
            if line.slot == slot:
                add(*_row(line, available))
    add(empty, Text("free"), empty, f"{budget.remaining:,}", f"{100 * budget.remaining / available:.1f} %")
    if not budget.direct:
        add(empty, Text("reserved for the response"), empty, f"{budget.reserve_response:,}")
        add(empty, Text("reserved for tool results"), empty, f"{budget.reserve_tools:,}")
    return table


def _row(line: TokenLine, available: int) -> tuple[Text, Text, Text, str, str]:
    count = line.messages if line.slot == "history" else 0
    messages = ""
    if count:
        messages = f" ({count:,} message{'s' if count != 1 else ''})"
    share = f"{100 * line.tokens / available:.1f} %"
    layer = Text(line.layer, _COLORS[line.layer])
    return layer, _text(line.name + messages), _text(line.source), f"{line.tokens:,}", share
