"""The image of the README, docs/pictures/call.svg: one call that is full, cut, cached and explained.

`make picture` calls it. Every figure is from the example workspace and session: from
`nexus explain main --budget 16000`, and `nexus context` for the call after it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "call.svg"
BUDGET = 16_000
OPTIONS = ("--budget", str(BUDGET), "--tools", str(ROOT / "examples" / "tools.json"))
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [{"type": "text", "text": "GIN, on the body."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 0, "output_tokens": 0},
}

WIDTH, LEFT, INNER = 960, 32, 896
NUMBER_WIDTH = 30
INK, DIM, BAD, GOOD, FREE = "#1f2328", "#59636e", "#cf222e", "#1a7f37", "#d1d9e0"
PARTS = (
    ("rules, persona, skills, tools", "#0969da"),
    ("first request, your words", "#8250df"),
    ("newest messages", "#4493f8"),
    ("time, question", "#bf8700"),
)
"""Parts of the call in sending order, with their colors."""


def main() -> int:
    """Write the image."""
    with TemporaryDirectory() as folder:
        workspace = Path(folder) / "agent"
        shutil.copytree(ROOT / "examples" / "agent", workspace)
        (workspace / "reply.json").write_text(json.dumps(REPLY))
        question = "What did we decide about the index?"
        nexus(workspace, "import", str(ROOT / "examples" / "session.json"), "--session", "main")
        lines = nexus(workspace, "explain", "main", "--message", question, *OPTIONS)["lines"]
        nexus(workspace, "assemble", question, "--session", "main", "--save", "context.json", *OPTIONS)
        nexus(workspace, "record", "context.json", "reply.json")
        prefix = nexus(workspace, "context", "main", "--message", "How large is it?", *OPTIONS)["cacheBoundary"]
    if prefix["state"] != "extends":
        raise SystemExit(f"the next call does not extend the one before ({prefix}): the image would be wrong")
    PICTURE.write_text("\n".join(svg(lines, prefix["stable_tokens"])) + "\n", "utf-8")
    print(PICTURE.relative_to(ROOT))
    return 0


def nexus(folder: Path, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    command = [sys.executable, "-m", "nexus", *arguments, "--json"]
    environment = os.environ | {"NEXUS_HOME": str(folder / "home")}
    return json.loads(subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def svg(lines: list[dict[str, Any]], cached: int) -> Iterator[str]:
    """Yield the lines of the image.

    Args:
        lines: Lines of the explained call.
        cached: Tokens with which the next call begins unchanged.
    """
    full, used = sum(line["full_tokens"] for line in lines), sum(line.get("tokens", 0) for line in lines)
    sizes = [sum(line.get("tokens", 0) for line in lines if _part(line) == number) for number in range(len(PARTS))]
    omitted = [line for line in lines if line["state"] == "omitted"]
    rows = list(_rows(lines))
    height = 280 + 24 * len(rows)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
    yield 'font-family="-apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif" font-size="14">'
    yield f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff" stroke="{FREE}"/>'

    limit = LEFT + INNER * BUDGET / full
    yield _text(
        LEFT, 32, f"1 · Full: session, workspace and tools are {full:,} tokens, the window has {BUDGET:,}", bold=True
    )
    yield _bar(LEFT, 44, limit - LEFT, "#afb8c1") + _bar(limit, 44, LEFT + INNER - limit, BAD, opacity=0.35)
    yield _text(limit + 12, 61, f"{full - BUDGET:,} tokens too many: the provider rejects the call", color=BAD)

    yield f'<path d="M{LEFT} 70 L{limit:.0f} 70 L{LEFT + INNER} 116 L{LEFT} 116 Z" fill="{FREE}" opacity="0.35"/>'
    title = f"2 · Cut: {len(omitted)} old messages leave; the first request and your recent words stay: {used:,} tokens"
    yield _text(LEFT, 104, title, bold=True)
    starts = [LEFT + INNER * start / BUDGET for start in accumulate(sizes, initial=0)]
    for (_, color), size, start, end in zip(PARTS, sizes, starts, starts[1:], strict=False):
        yield _bar(start, 116, end - start, color)
        if end - start > NUMBER_WIDTH:
            yield _text((start + end) / 2, 134, f"{size:,}", color="#ffffff", anchor="middle")
    yield _bar(starts[-1], 116, LEFT + INNER - starts[-1], FREE, opacity=0.6)
    yield _text((starts[-1] + LEFT + INNER) / 2, 134, f"{BUDGET - used:,} free", color=DIM, anchor="middle")
    for x, (name, color) in zip(range(LEFT, WIDTH, 224), PARTS, strict=False):
        yield f'<rect x="{x:.0f}" y="153" width="10" height="10" rx="2" fill="{color}"/>'
        yield _text(x + 16, 163, name, color=DIM, size=12)

    end = LEFT + INNER * cached / BUDGET
    yield f'<path d="M{LEFT} 180 v8 H{end:.0f} v-8" fill="none" stroke="{GOOD}" stroke-width="2"/>'
    title = f"3 · Cached: the next call begins with {cached:,} of these tokens, byte for byte"
    yield _text(LEFT, 210, title, color=GOOD, bold=True)

    yield _text(LEFT, 252, "4 · Explained: every block and message has its reason (nexus explain main)", bold=True)
    for number, (tokens, state, content, reason) in enumerate(rows):
        y, color = 280 + 24 * number, BAD if state == "omitted" else INK
        yield _text(LEFT + 70, y, tokens, color=color, anchor="end", mono=True)
        for x, text in ((LEFT + 90, state), (LEFT + 180, content), (LEFT + 400, reason)):
            yield _text(x, y, text, color=color, mono=True)
    yield "</svg>"


def _part(line: dict[str, Any]) -> int:
    """Return the part of the call that a line belongs to."""
    if line["slot"] not in ("history", "current"):
        return 0
    if line["slot"] == "current" or line["kind"] == "event":
        return 3
    return 1 if line["reason"] in ("first task", "excerpt", "the request that the kept messages answer") else 2


def _rows(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield tokens, state, content and reason: a block, first request, excerpt, omitted result, the omitted memory."""
    wanted = (
        ("block", "AGENTS.md", "included"),
        ("message", "first task", "included"),
        ("message", "excerpt", "included"),
        ("message", "cut", "omitted"),
        ("message", "newest", "included"),
        ("block", "MEMORY.md", "omitted"),
    )
    for kind, word, state in wanted:
        found = [
            line
            for line in lines
            if line["kind"] == kind and line["state"] == state and word in f"{line.get('source', '')} {line['reason']}"
        ]
        line = max(found, key=lambda one: one["full_tokens"])
        place = line.get("place")
        ref = f"{line['name']} {place['seq']}.{place['ord']}" if place else f"{line['name']} {line['source']}"
        yield f"{line['full_tokens']:,}", state, ref, line["reason"]


def _bar(x: float, y: float, width: float, color: str, *, opacity: float = 1) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" fill="{color}" opacity="{opacity}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    color: str = INK,
    anchor: str = "start",
    size: int = 14,
    bold: bool = False,
    mono: bool = False,
) -> str:
    style = ' font-weight="600"' if bold else ""
    if mono:
        style, size = ' font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"', 13
    return f'<text x="{x:.1f}" y="{y}" fill="{color}" text-anchor="{anchor}" font-size="{size}"{style}>{escape(text)}</text>'


if __name__ == "__main__":
    raise SystemExit(main())
