"""Bringing transcripts into the ledger: each piece once, however often its file is read and however much it has grown.

A transcript is one transaction. A name that another conversation has gets a number. Its forks become sessions `NAME~1`, `NAME~2`, its side chains `NAME+ID`. When the session
went on here meanwhile, what is new in the file becomes a fork `NAME~continued`, so that neither history is mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.engine import Engine
from nexus.interop.transcript import Problem, Step, Transcript
from nexus.ledger.entries import Commit, Compaction, NewEntry
from nexus.ledger.sessions import SessionFacts
from nexus.message import Image, Message, Part, ToolResult
from nexus.record import sized
from nexus.sources.media import measured


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


def import_transcript(
    nx: Engine, transcript: Transcript, session: str = "", *, dry_run: bool = False
) -> list[Imported]:
    """Imports a transcript with its forks and side chains; one result for each session that it touches."""
    name = _free_name(nx, transcript, session or transcript.source_id)
    source, last = _copied(nx, transcript, name)
    done = [_path(nx, transcript, name, transcript.steps, parent=source, after=last, dry_run=dry_run)]
    bare = replace(transcript, counted={}, left_out={}, problems=(), lines=0, message_lines=0)
    for number, fork in enumerate(transcript.forks, 1):
        parent = name if fork.branch < 0 else f"{name}~{fork.branch + 1}"
        one = _path(nx, bare, f"{name}~{number}", fork.steps, parent=parent, after=fork.after, dry_run=dry_run)
        done.extend([one] if one.added else [])
    for side in transcript.sidechains:
        own = f"{name}+{side.source_id}"
        done.extend(import_transcript(nx, side, own, dry_run=dry_run))
        if not dry_run and nx.store.resolve(name) and nx.store.resolve(own) and not nx.ledger.facts(own).parent_session:
            nx.ledger.update(own, "spawned", parent_session=name)
    return done


def _copied(nx: Engine, transcript: Transcript, name: str) -> tuple[str, str]:
    """The session whose messages a new conversation begins with, and the last key they share; empty if there is none.

    A program that resumes a conversation may copy it into a new file under a new name before it goes on.
    """
    keys = [key for step in transcript.steps for key in step.keys]
    if not transcript.unique_keys or not keys or nx.store.thread_of(name) is not None:
        return "", ""
    threads = {thread for thread, _ in nx.store.holders(keys[0])}
    sources = [one.label for one in nx.store.sessions(every=True) if one.thread in threads]
    shared: dict[str, str] = {}
    for label in sources:
        known = nx.store.known_keys(label)
        for key in keys:
            if key not in known:
                break
            shared[label] = key
    best = max(shared, key=lambda label: keys.index(shared[label]), default="")
    return best, shared.get(best, "")


def _path(
    nx: Engine,
    transcript: Transcript,
    label: str,
    steps: tuple[Step, ...],
    *,
    parent: str = "",
    after: str = "",
    dry_run: bool,
) -> Imported:
    """One path of steps into one session: what is unknown, at the place where it belongs."""
    base = nx.store.known_keys(parent) if parent else {}
    if parent and after not in base:
        continued = f"{parent}~continued"
        beside = nx.store.known_keys(continued)
        parent, base = (continued, {**base, **beside}) if after in beside else (parent, base)
    known, elsewhere, note = nx.store.known_keys(label), dict(base), ""
    new = _unknown(steps, {**elsewhere, **known})
    if new and parent and not known and not dry_run:
        at = base.get(after, 0)
        at += base.get(f"{after}:end") == at + 1  # with the end of the turn, if that is what ended it
        nx.store.fork(label, parent, at, facts=_facts(transcript))
    head = _head(nx, label)
    while new and (last := _last(steps, known, head)) < head:
        continued = f"{label}~continued"
        elsewhere |= known
        known = nx.store.known_keys(continued)
        new = _unknown(steps, {**elsewhere, **known})
        if new:
            note = f"the session went on otherwise since the last import: what is new became {continued!r}"
            if not dry_run and nx.store.thread_of(continued) is None:
                nx.store.fork(continued, label, last)
        label, head = continued, _head(nx, continued) or last
    entries = list(_entries(nx, steps, {**elsewhere, **known}, head))
    if entries and not known and not parent:
        entries[0] = replace(entries[0], body={**entries[0].body, "imported": _origin(transcript)})
    if entries and not dry_run:
        nx.store.commit(label, Commit(tuple(entries), expected_head=head), _facts(transcript))
    messages = [message for step in new for message in step.messages]
    return Imported(
        session=label,
        format=transcript.format,
        source=transcript.source_id,
        title=transcript.title,
        added=len(new),
        known=len(steps) - len(new),
        messages=len(messages),
        calls=sum(1 for m in messages for _ in m.calls()),
        results=sum(1 for m in messages for _ in m.results()),
        compactions=sum(step.kind == "compaction" for step in new),
        lines=transcript.lines,
        message_lines=transcript.message_lines,
        counted=transcript.counted,
        left_out=transcript.left_out,
        problems=transcript.problems,
        dry_run=dry_run,
        note=note,
    )


def _facts(transcript: Transcript) -> SessionFacts:
    return SessionFacts(title=transcript.title, origin=transcript.format, origin_id=transcript.source_id)


def _free_name(nx: Engine, transcript: Transcript, wanted: str) -> str:
    """The first of NAME, NAME-2, … that is new or has something of this very conversation: two are never mixed."""
    keys = set(transcript.all_keys())
    name, number = wanted, 1
    while nx.store.thread_of(name) is not None and keys.isdisjoint(nx.store.known_keys(name)):
        number += 1
        name = f"{wanted}-{number}"
    return name


def _unknown(steps: tuple[Step, ...], known: Mapping[str, int]) -> list[Step]:
    return [step for step in (step.without(known) for step in steps) if step is not None]


def _last(steps: tuple[Step, ...], known: Mapping[str, int], head: int) -> int:
    """Where the newest known step of the path stands; at the head if none is known."""
    return max((known[key] for step in steps for key in _keys(step) if key in known), default=head)


def _head(nx: Engine, label: str) -> int:
    thread = nx.store.thread_of(label)
    return nx.store.head(thread)[0] if thread is not None else 0


def _keys(step: Step) -> tuple[str, ...]:
    return (*step.keys, *(f"{key}:end" for key in step.keys[-1:]))


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
            yield NewEntry(
                step.kind,
                sized(map(_with_image_sizes, new.messages), nx.counter),
                body,
                new.at_ms,
                new.opens_turn,
                new.keys,
            )
            seqs.update(dict.fromkeys(new.keys, here))
            next_seq += 1
        if step.kind == "compaction":
            covers_from = seqs.get(step.kept_from, here + 1)
        end = f"{step.keys[-1]}:end" if step.keys else ""
        if step.closes_turn and end and end not in known:
            yield NewEntry("completed", at_ms=step.at_ms, keys=(end,))
            next_seq += 1


def _with_image_sizes(message: Message) -> Message:
    """Files seldom say how large an image is, and its tokens depend on that."""
    parts = tuple(_part_with_sizes(part) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _part_with_sizes(part: Part) -> Part:
    if isinstance(part, Image):
        return measured(part)
    if isinstance(part, ToolResult) and any(isinstance(item, Image) for item in part.content):
        return replace(part, content=tuple(measured(i) if isinstance(i, Image) else i for i in part.content))
    return part


def _origin(transcript: Transcript) -> dict[str, Any]:
    """What the file says about the conversation as a whole, kept with its first entry."""
    told = {
        "format": transcript.format,
        "source": transcript.source_id,
        "cwd": transcript.cwd,
        "model": transcript.model,
    }
    meta = {"meta": json.loads(transcript.meta)} if transcript.meta else {}
    return {**{name: value for name, value in told.items() if value}, **meta}


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
            covers_from=covers_from,
            covers_to=min(here, first_kept) - 1,
            first_kept=first_kept,
            summary=step.summary,
            type="imported",
            trigger=step.trigger or "manual",
            tokens_before=step.tokens_before,
        )
    )
