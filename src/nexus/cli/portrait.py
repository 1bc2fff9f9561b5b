"""All that is known of one session, as a value and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from nexus.cli.listing import label_of, moment
from nexus.engine import Engine
from nexus.ledger.sessions import SessionInfo, Thread
from nexus.render.console import printable


def portrait(nx: Engine, name: str) -> dict[str, Any]:
    """What is known of a session, read at one moment. Raises NoSuchSession."""
    with nx.store.snapshot():
        label = label_of(nx, name)
        everyone = nx.sessions(include_inactive=True)
        info = next(one for one in everyone if one.label == label)
        thread = nx.store.thread(info.thread)
        facts = nx.ledger.metadata(label)
        live = nx.ledger.live(label)
        mark = live.mark
        return {
            "session": label,
            "thread": thread.id,
            **msgspec.to_builtins(facts),
            "status": facts.status,
            "turns": info.turns,
            "messages": info.messages,
            "tokens": info.tokens,
            "entries": thread.head_seq,
            "first_ms": info.first_ms,
            "last_ms": info.last_ms,
            "open_turn": thread.turn if thread.open_turn else None,
            "shown_from": None if mark is None else {"kind": mark.kind, "entry": mark.seq, **mark.body},
            "undone": sorted(live.undone),
            "pins": msgspec.to_builtins(live.pins),
            "aliases": [one.name for one in nx.ledger.store.aliases() if nx.ledger.resolve(one.name) == label],
            "forked_from": _source(nx, thread, everyone),
            "spawned": [one.label for one in nx.ledger.spawned(label)],
        }


def lines_of(found: dict[str, Any]) -> Iterator[str]:
    """The lines that `nexus session show` prints; what is not known has none."""
    return (f"{name:<14} {printable(text)}" for name, text in _facts(found) if text)


def _source(nx: Engine, thread: Thread, everyone: list[SessionInfo]) -> dict[str, Any] | None:
    """The thread that a session's thread continues, and the sessions that point to it, or did if none does now."""
    if thread.parent is None:
        return None
    now = [one.label for one in everyone if one.thread == thread.parent]
    once = [
        one.label
        for one in everyone
        if not now and any(move.thread == thread.parent for move in nx.store.moves(one.label))
    ]
    return {"thread": thread.parent, "entry": thread.fork_seq, "sessions": now, "once_of": once}


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("session", "title", "status", "persona", "task", "task_status", "origin", "origin_id", "routing_key"):
        yield name.replace("_", " "), found.get(name, "")
    if parent := found.get("parent_session"):
        turn = f", turn {found['parent_turn']}" if "parent_turn" in found else ""
        call = f", call {found['parent_call_id']}" if "parent_call_id" in found else ""
        yield "spawned by", f"{parent}{turn}{call}"
    yield "spawned", ", ".join(found["spawned"])
    yield "aliases", ", ".join(found["aliases"])
    yield "thread", str(found["thread"])
    if source := found["forked_from"]:
        once = f"once of {', '.join(source['once_of'])}" if source["once_of"] else "of no session now"
        of = ", ".join(source["sessions"]) or once
        yield "forked from", f"thread {source['thread']} ({of}), at entry {source['entry']}"
    for name in ("turns", "messages", "tokens", "entries"):
        yield name, f"{found[name]:,}"
    yield "first", moment(found["first_ms"])
    yield "last", moment(found["last_ms"])
    yield "open turn", str(found["open_turn"] or "")
    yield "shown", _shown(found["shown_from"])
    yield "undone", ", ".join(f"compaction at entry {seq}" for seq in found["undone"])
    yield "pins", ", ".join(f"{pin['seq']}.{pin['ord']}" for pin in found["pins"])


def _shown(mark: dict[str, Any] | None) -> str:
    """What of the session is shown: everything, what followed a clear, or a summary and what it kept."""
    if mark is None:
        return "everything"
    if mark["kind"] == "clear":
        return f"what came after the clear at entry {mark['entry']}"
    return (
        f"a summary of entries {mark['covers_from']} to {mark['covers_to']} (compaction at entry {mark['entry']}), "
        f"then entries from {mark['first_kept']} on"
    )
