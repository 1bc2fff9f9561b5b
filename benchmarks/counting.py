"""Accuracy of token counts against reported usage on real sessions, and the speed of imports.

Between two calls of a session, the reported input grows by what was said in between: the model's answer and the results
or texts that followed. That growth is compared with the count of the same messages. Whole prompts would tell less: the
tool's own system prompt, which no file holds, is most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

import nexus
from benchmarks.bodies import Remembered
from benchmarks.measure import middle, timed
from benchmarks.report import Cell, Outcome, Table, Target
from benchmarks.sessions import session_files, transcripts
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from nexus.interop.transcript import Transcript
from nexus.tokens.content import MeasuredContent
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model import resolve
from nexus.types.message import Image, Message, Note, Text, Thinking, ToolCall, ToolResult, Unknown

COMMAND = "python -m benchmarks counting"
DATA = "Claude Code, all files"
IMPORT_ROUNDS = 3
LEAST_DELTA = 20
"""Tokens; a smaller growth says more about rounding than about counting."""

WANTED = (1.0, 1.25)
"""Counts should err upwards, so that nothing exceeds a window unforeseen, but not waste a quarter of it."""


class Delta(Struct, frozen=True):
    """What came between two calls: the model, the growth of the reported input, and the messages."""

    model: str
    reported: int
    messages: tuple[Message, ...]


def run() -> Outcome:
    """The counts against the reports, by model, and the speed of importing all files."""
    counter = Remembered()
    deltas, passed_over = _all_deltas()
    rows: list[tuple[Cell, ...]] = []
    ways = _ways(counter)
    models = sorted({delta.model for delta in deltas})
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for model in ("all", *models):
        some = [delta for delta in deltas if model in ("all", delta.model)]
        for name, count in ways.items():
            ratios = sorted(count(delta) / delta.reported for delta in some)
            total = sum(count(delta) for delta in some) / sum(delta.reported for delta in some)
            edges = quantiles(ratios, n=20) if len(ratios) > 1 else [*ratios, *ratios]
            found[model, name] = (median(ratios), total)
            rows.append((model, name, median(ratios), total, edges[0], edges[-1], len(some)))
    columns = ("model", "count", "median", "total", "p5", "p95", "deltas")
    notes = (
        "Count over reported growth of the input from call to call, cache included; 1.0 is exact. total: ratio of the sums.",
        f"Skipped: {passed_over}.",
    )
    table = Table("Count / reported tokens", COMMAND, DATA, columns, tuple(rows[: len(ways)]), notes)
    by_model = replace(table, title=f"{table.title}, by model", rows=tuple(rows[len(ways) :]), detail=True)
    middle_ratio, total = found["all", NEXUS]
    low, high = WANTED
    target = Target(
        "count / reported tokens, median and total",
        f"between {low} and {high}",
        f"{middle_ratio:.2f}, {total:.2f}",
        low <= min(middle_ratio, total) and max(middle_ratio, total) <= high,
    )
    return Outcome((table, by_model, _importing()), (target,))


NEXUS = "Nexus: estimate by content"


def _ways(counter: Remembered) -> dict[str, Callable[[Delta], float]]:
    def nexus_count(delta: Delta, *, aside: bool = True) -> float:
        model, content, tokens = resolve(delta.model), MeasuredContent(), base_counts(delta, aside=aside)
        if model.content is None:
            return sum(tokens) * model.token_factor
        for message, size in zip(delta.messages, tokens, strict=True):
            content.add_messages((message,), size, "anthropic")
        return content.estimated_tokens(model.content, model.token_factor)

    def base_counts(delta: Delta, *, aside: bool = True) -> list[int]:
        sizes = [message_tokens(message, counter) for message in delta.messages]
        return [size.anthropic + (size.optional if aside else 0) for size in sizes]

    return {
        NEXUS: nexus_count,
        "the same, without thinking": lambda delta: nexus_count(delta, aside=False),
        "base count x token_factor": lambda delta: sum(base_counts(delta)) * resolve(delta.model).token_factor,
        "o200k of the plain text": lambda delta: sum(counter.count(text) for m in delta.messages for text in _texts(m)),
        "len/4 of the plain text": lambda delta: sum(len(text) for m in delta.messages for text in _texts(m)) / 4,
    }


def _texts(message: Message) -> Iterator[str]:
    """The texts of a message, as somebody would count them who does not know what is sent: no ids, names or framing."""
    for part in message.parts:
        match part:
            case Text(text) | Thinking(text=text) | Note(text=text):
                yield text
            case ToolCall(arguments=arguments):
                yield arguments
            case ToolResult(content=content):
                yield from (item.text for item in content if isinstance(item, Text))
            case Image() | Unknown():
                pass


def _all_deltas() -> tuple[list[Delta], str]:
    """All deltas of all files, and in words how many calls gave none."""
    deltas: list[Delta] = []
    passed: dict[str, int] = {}
    for _, transcript in transcripts():
        for found in _deltas(transcript):
            if isinstance(found, Delta):
                deltas.append(found)
            else:
                passed[found] = passed.get(found, 0) + 1
    return deltas, ", ".join(f"{count} ({reason})" for reason, count in sorted(passed.items())) or "none"


def _deltas(transcript: Transcript) -> Iterator[Delta | str]:
    """For each call but the first its delta, or why it has none."""
    reported, model = 0, ""
    between: list[Message] = []
    for step in transcript.steps:
        if step.kind != "messages":
            reported, between = 0, []
            continue
        said = step.messages
        if step.usage is None:
            between.extend(said)
            continue
        grown = step.usage.input_tokens - reported
        if reported and said[0].model != model:
            yield "another model answered"
        elif reported and grown < LEAST_DELTA:
            yield f"input grew by less than {LEAST_DELTA} tokens, or shrank"
        elif reported:
            yield Delta(model, grown, tuple(between))
        reported, model, between = step.usage.input_tokens, said[0].model, [*said]


def _importing() -> Table:
    rows: list[tuple[Cell, ...]] = []
    files = session_files()
    with TemporaryDirectory() as folder:
        for where in ("memory", "file"):
            made = [timed(lambda path=path: _import(files, path)) for path in _ledgers(where, Path(folder))]
            messages, spent = made[0][0], middle([spent for _, spent in made])
            rows.append((where, messages, spent.cpu_ms, spent.wall_ms, round(messages / spent.wall_ms * 1000)))
    _, reading = timed(lambda: [list(read(path)) for path in files])
    columns = ("ledger", "messages", "CPU ms", "wall ms", "messages per second")
    size = sum(path.stat().st_size for path in files)
    notes = (
        f"Medians of {IMPORT_ROUNDS}: read {size / 1e6:.1f} MB, count every message, write. Reading alone: {reading.cpu_ms:.0f} ms of CPU.",
    )
    return Table("Import of all files into a new ledger", COMMAND, DATA, columns, tuple(rows), notes)


def _ledgers(where: str, folder: Path) -> list[str]:
    if where == "memory":
        return [":memory:"] * IMPORT_ROUNDS
    return [str(folder / f"{number}.db") for number in range(IMPORT_ROUNDS)]


def _import(files: Sequence[Path], ledger: str) -> int:
    with nexus.open(ledger=ledger) as nx:
        done = [result for path in files for transcript in read(path) for result in import_transcript(nx, transcript)]
    return sum(result.messages for result in done)
