"""Bringing transcripts into the ledger: each piece once, however often its file is read and however much it has grown.

A transcript is one transaction. Its forks become sessions `NAME~1`, `NAME~2`, its side chains `NAME+ID`. When the session
went on here meanwhile, what is new in the file becomes a fork `NAME~continued`, so that neither history is mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from nexus.engine import Engine
from nexus.interop.transcript import Problem, Step, Transcript
from nexus.ledger.entries import Commit, Compaction, NewEntry
from nexus.record import sized


class Imported(Struct, frozen=True):
    """What an import did, or would do in a dry run. `known` counts steps that were there already."""

    session: str
    format: str
    source: str
    title: str
    added: int
    known: int
    messages: int
    calls: int
    results: int
    compactions: int
    lines: int
    message_lines: int
    counted: dict[str, int]
    left_out: dict[str, int]
    problems: tuple[Problem, ...]
    dry_run: bool
    note: str = ""


def import_transcript(nx: Engine, transcript: Transcript, session: str = "", *, dry_run: bool = False) -> list[Imported]:
    """Imports a transcript with its forks and side chains; one result for each session that it touches."""
    name = session or transcript.source_id
    done = [_path(nx, transcript, name, transcript.steps, dry_run=dry_run)]
    for number, fork in enumerate(transcript.forks, 1):
        label = f"{name}~{number}"
        if not dry_run and nx.ledger.thread_of(label) is None:
            nx.ledger.fork(label, name, nx.ledger.known_keys(name).get(fork.after, 0))
        bare = msgspec.structs.replace(transcript, counted={}, left_out={}, problems=(), lines=0, message_lines=0)
        done.append(_path(nx, bare, label, fork.steps, dry_run=dry_run))
    for side in transcript.sidechains:
        done.extend(import_transcript(nx, side, f"{name}+{side.source_id}", dry_run=dry_run))
    return done


def _path(nx: Engine, transcript: Transcript, name: str, steps: tuple[Step, ...], *, dry_run: bool) -> Imported:
    known = nx.ledger.known_keys(name)
    continued = f"{name}~continued"
    elsewhere = nx.ledger.known_keys(continued)
    new = [step for step in (step.without({**known, **elsewhere}) for step in steps) if step is not None]
    thread = nx.ledger.thread_of(name)
    head = nx.ledger.head(thread)[0] if thread is not None else 0
    note = ""
    if new and (elsewhere or (known and max(known.values()) < head)):
        note = f"the session went on here since the last import: what is new became {continued!r}"
        if not dry_run and nx.ledger.thread_of(continued) is None:
            nx.ledger.fork(continued, name, max(known.values()))
        name, known = continued, {**known, **elsewhere}
        thread = nx.ledger.thread_of(name)
        head = nx.ledger.head(thread)[0] if thread is not None else max(known.values())
    entries = list(_entries(nx, steps, known, head))
    if entries and not dry_run:
        nx.ledger.commit(name, Commit(tuple(entries), expected_head=head), title=transcript.title)
    messages = [message for step in new for message in step.messages]
    return Imported(
        session=name, format=transcript.format, source=transcript.source_id, title=transcript.title,
        added=len(new), known=len(steps) - len(new), messages=len(messages),
        calls=sum(1 for m in messages for _ in m.calls()), results=sum(1 for m in messages for _ in m.results()),
        compactions=sum(step.kind == "compaction" for step in new), lines=transcript.lines,
        message_lines=transcript.message_lines, counted=transcript.counted, left_out=transcript.left_out,
        problems=transcript.problems, dry_run=dry_run, note=note,
    )


def _entries(nx: Engine, steps: tuple[Step, ...], known: Mapping[str, int], head: int) -> Iterator[NewEntry]:
    """The entries to append, in order. Positions are counted from `head`, which the commit insists on."""
    seqs = dict(known)
    covers_from, next_seq = 1, head + 1
    for step in steps:
        new = step.without(known)
        here = next_seq if new is not None else seqs.get(step.keys[0], 0) if step.keys else 0
        if step.kind == "clear":
            covers_from = here + 1
        if new is not None:
            body = _compaction(step, covers_from, here, seqs) if step.kind == "compaction" else _body(step)
            yield NewEntry(step.kind, sized(new.messages, nx.counter), body, new.at_ms, new.opens_turn, new.keys)
            seqs.update(dict.fromkeys(new.keys, here))
            next_seq += 1
        if step.kind == "compaction":
            covers_from = seqs.get(step.kept_from, here + 1)
        end = f"{step.keys[-1]}:end" if step.keys else ""
        if step.closes_turn and end and end not in known:
            yield NewEntry("completed", at_ms=step.at_ms, keys=(end,))
            next_seq += 1


def _body(step: Step) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if step.usage is not None:
        body["usage"] = msgspec.to_builtins(step.usage)
    if step.stop_reason:
        body["stop_reason"] = step.stop_reason
    return body


def _compaction(step: Step, covers_from: int, here: int, seqs: Mapping[str, int]) -> dict[str, Any]:
    first_kept = seqs.get(step.kept_from, here + 1)
    return msgspec.to_builtins(
        Compaction(
            covers_from=covers_from, covers_to=min(here, first_kept) - 1, first_kept=first_kept, summary=step.summary,
            type="imported", trigger=step.trigger or "manual", tokens_before=step.tokens_before,
        )
    )
