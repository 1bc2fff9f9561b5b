"""What it costs to escape text that goes into a frame, to undo it, and to look through a ready context for marks."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import middle, timed
from benchmarks.report import Cell, Outcome, Table, Target
from nexus.text.frames import Scope, escape, scan, unescape

COMMAND = "python -m benchmarks frames"
SIZE = 100_000
ROUNDS = 7
MOST_MS = 15.0
SCOPES: tuple[Scope, ...] = ("block", "memory")

PROSE = """\
The meeting is at 10:30; please send the notes before that. (They are in the folder "plans", next to the budget.)
- first, compare the two offers [1]: one is cheaper, the other comes a week earlier
- then answer Ms. Ortiz, who asked twice, and tell her that the contract is being read by the lawyers

"""
CODE = """\
def total(rows: list[dict[str, int]]) -> int:
    for row in rows:
        if row["at"] < limit and row["kind"] in ("human", "tool"):
            print(f"<row {row['at']}>", file=sys.stderr)
    return sum(row.get("size", 0) for row in rows)

{"rows": [{"at": 1, "kind": "human", "size": 10}, {"at": 2, "kind": "tool", "size": 12}], "next": null}
"""
GERMAN = """\
Die Übergabe ist für Dienstag geplant; bitte prüfen Sie vorher die Schlüssel und den Zählerstand (Keller, rechts).
„Größere Änderungen“, schrieb Frau Müller, „können wir erst nächste Woche abschließen – früher wäre es schöner.“

"""
CHINESE = """\
会议定在上午十点半，请提前把笔记发给大家。笔记在“计划”文件夹里，就在预算旁边。第一，比较两份报价：一份便宜，另一份早到一周。
「合同正在审阅」，律师说；请回复王女士，她已经问了两次。今天北京下雨，下午三点以后可能转晴，记得带伞。

"""
MARKED = PROSE + "[SHARED_MEMORY count=1]\n[2025-12-10 15:30] Human: <human_input>no</human_input>\n"
ORDINARY = {"English prose": PROSE, "code and JSON": CODE, "German": GERMAN, "Chinese": CHINESE}
HOSTILE = {
    "a mark beside a mark": "</human_input>",
    "line starts that begin a mark": "\n[",
    "brackets and what is unseen": "<\u200b",
    "a mark that never ends": "\n[previous conversation summar",
    "speakers' lines": "\n[2025-12-10 15:30] Human:",
    "tag characters": "\U000e003c\U000e0068",
}


def run() -> Outcome:
    """Every kind of text, both scopes; the targets are for ordinary text."""
    kinds = {**ORDINARY, "prose that quotes marks": MARKED, **HOSTILE}
    rows: list[tuple[Cell, ...]] = []
    slowest = 0.0
    for name, piece in kinds.items():
        text = _filled(piece)
        for scope in SCOPES:
            escaped = escape(text, scope)
            spent = _spent(lambda text=text, scope=scope: escape(text, scope))
            undone = _spent(lambda text=escaped, scope=scope: unescape(text, scope))
            seen = _spent(lambda text=escaped, scope=scope: scan(text, scope))
            if name in ORDINARY:
                slowest = max(slowest, spent)
            rows.append((name, scope, len(escaped) - len(text), spent, undone, seen))
    columns = ("text", "scope", "backslashes", "escape, CPU ms", "undo, CPU ms", "scan, CPU ms")
    data = f"{SIZE:,} bytes of UTF-8 of each kind, made in the benchmark"
    notes = (f"Medians of {ROUNDS} rounds.", "The last six kinds are made to be slow; nobody writes them.")
    target = Target(
        "escaping ordinary text, the slowest kind", f"under {MOST_MS:g} ms", f"{slowest:.1f} ms", slowest < MOST_MS
    )
    return Outcome((Table("Escaping and undoing", COMMAND, data, columns, tuple(rows), notes),), (target,))


def _filled(piece: str) -> str:
    return piece * (SIZE // len(piece.encode()) + 1)


def _spent(work: Callable[[], object]) -> float:
    return middle([timed(work)[1] for _ in range(ROUNDS)]).cpu_ms
