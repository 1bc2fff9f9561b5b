"""Reader of a tagged dialogue's history: database rows with `role`, `content`, `run_id`, `timestamp` and `metadata`.

The store returns them newest first (document 000, `PersistenceService.get_history`). Rows in another order are read in
the order of their times, and that is reported. A row's key is its id, or else depends on its content alone, because the
position changes with every new row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply, UnreadableFile
from nexus.interop.json_lines import OnRead, read_json_lines
from nexus.interop.readers import FileReader
from nexus.interop.transcript import (
    FileReport,
    FileTimes,
    Problem,
    Step,
    Transcript,
    TranscriptPiece,
    group_into_turns,
    time_ms,
)
from nexus.providers import openai
from nexus.providers.received import CallIndex, compact_json, items_of, mapping, text_of

_ROLES = {
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
}
_OWNER = ("session_id", "owner_key", "session")


def is_row(record: dict[str, Any]) -> bool:
    """Return True for a row of such a history."""
    is_other = any(name in record for name in ("tool_calls", "tool_call_id"))
    return "run_id" in record and text_of(record.get("role")).lower() in _ROLES and not is_other


def rows_in(value: Any) -> list[Any]:
    """Return the rows of a JSON value: a list of rows, an object with a list of rows, or one row."""
    record = mapping(value)
    if is_row(record):
        return [record]
    lists = (items_of(value), *(items_of(record.get(name)) for name in ("messages", "history", "rows")))
    for rows in lists:
        if any(is_row(mapping(row)) for row in rows):
            return rows
    return []


def read(path: Path, on_read: OnRead | None = None) -> Iterator[Transcript]:
    """Yield the file's conversation, oldest row first. Raises UnreadableFile without rows."""
    rows: list[tuple[int, dict[str, Any]]] = []
    problems: list[Problem] = []
    counted: Counter[str] = Counter()
    lines = 0
    for line in read_json_lines(path, on_read):
        found_rows = rows_in(line.value)
        lines += 1
        if line.problem:
            problems.append(line.problem)
        if not is_row(mapping(line.value)):
            counted[line.kind or ("rows" if found_rows else "(no row)")] += 1
        rows += [(line.line, mapping(row)) for row in found_rows]
    if not rows:
        raise UnreadableFile(f"{path} contains no rows of a dialogue (name another format with --format)")
    rows = _oldest_first(rows, problems)
    owners = {next((text_of(row[name]) for name in _OWNER if text_of(row.get(name))), "") for _, row in rows}
    source_id = owners.pop() if len(owners) == 1 else ""
    source_id = source_id or path.stem
    times = FileTimes(path, problems)
    steps, damaged = _steps(rows, source_id, problems, times)
    if lines > 1:
        counted["(damaged message)"] = damaged
    yield Transcript(
        format="dialogue",
        source_id=source_id,
        steps=group_into_turns(steps, ended=True),
        report=FileReport(lines, lines - counted.total(), dict(+counted), problems=tuple(problems)),
        undated_ms=times.undated_ms,
    )


def _oldest_first(rows: list[tuple[int, dict[str, Any]]], problems: list[Problem]) -> list[tuple[int, dict[str, Any]]]:
    times = [time_ms(row.get("timestamp")) for _, row in rows]
    pairs = [(first, second) for first, second in pairwise(filter(None, times)) if first != second]
    rising = sum(first < second for first, second in pairs)
    if not rising:
        return rows[::-1]
    if rising == len(pairs):
        problems.append(Problem(rows[0][0], "order", "rows are oldest first, not newest first: read in this order"))
        return rows
    problems.append(Problem(rows[0][0], "order", "rows are not in the order of their times: sorted by them"))
    rows = rows if 2 * rising > len(pairs) else rows[::-1]
    return sorted(rows, key=lambda item: time_ms(item[1].get("timestamp")))


def _steps(
    rows: list[tuple[int, dict[str, Any]]], source_id: str, problems: list[Problem], times: FileTimes
) -> tuple[list[Step], int]:
    """Return one step for each row, and the number of damaged rows."""
    calls = CallIndex()
    used = Counter[str]()
    steps = list[Step]()
    damaged = 0
    for line, row in rows:
        at_ms = times.read(line, row.get("timestamp"))
        row_id = row.get("id")
        digest = hashlib.sha256(compact_json(row).encode(errors="surrogatepass")).hexdigest()[:16]
        name = digest
        if isinstance(row_id, (str, int)) and row_id != "":
            name = str(row_id)
        used[name] += 1
        key = f"{source_id}/{name}" if used[name] == 1 else f"{source_id}/{name}#{used[name]}"
        try:
            (message,) = openai.message(_as_openai(row), calls)
        except (BadReply, RecursionError) as error:
            damaged += 1
            problems.append(Problem(line, "damaged message", str(error) or "nested too deeply"))
            continue
        message = replace(message, id=key, at_ms=at_ms)
        calls.add((message,))
        steps.append(Step(pieces=(TranscriptPiece(key, (message,)),), at_ms=at_ms))
    return steps, damaged


def _as_openai(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a message in OpenAI's format; `run_id` remains a field of its own."""
    metadata = mapping(row.get("metadata"))
    role = _ROLES.get(text_of(row.get("role")).lower(), "")
    message: dict[str, Any] = {"role": role, "content": row.get("content"), "run_id": row.get("run_id")}
    if role == "assistant" and items_of(metadata.get("tool_calls")):
        message["tool_calls"] = [_call(mapping(call)) for call in items_of(metadata["tool_calls"])]
    if role == "tool":
        message |= {
            "tool_call_id": metadata.get("tool_call_id") or metadata.get("call_id") or "",
            "name": metadata.get("tool_name") or metadata.get("name") or "",
        }
    return message


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = mapping(call.get("function")) or call
    arguments = function.get("arguments", "")
    if isinstance(arguments, str):
        text = arguments
    else:
        text = json.dumps(arguments, ensure_ascii=False)
    openai_call = {"type": "function", "function": {"name": text_of(function.get("name")), "arguments": text}}
    return {**({"id": call["id"]} if text_of(call.get("id")) else {}), **openai_call}


READER = FileReader(read, owns_value=lambda value: bool(rows_in(value)))
