"""A small ledger that has something of everything, in any store; and records changed as damage or a writer would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from nexus.assembly.record import with_sizes
from nexus.ledger import chain
from nexus.ledger.records import AliasRecord, DecisionRecord, EntryRecord, MoveRecord, Record, ThreadRecord
from nexus.ledger.sessions import Alias, NewQueuedEvent, NewRefUpdate, SessionMetadata, event_key
from nexus.ledger.store import LedgerStore
from nexus.tokens.counter import get_counter
from nexus.types.ledger_entries import AssemblyRow, Commit, Cut, MessageRef, NewEntry, StoredCalibration
from nexus.types.message import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user

COUNTER = get_counter("estimate")
HOSTILE = "nul\x00 sub\x1a half\ud800 pair\U0001f600 line\u2028\nend"


def said(*messages: Message, **fields: Any) -> NewEntry:
    """An entry with these messages."""
    return NewEntry(messages=with_sizes(messages, COUNTER), **fields)


def exchange(number: int, *, key: str = "") -> tuple[NewEntry, ...]:
    """One turn: a question, a call, its result, an answer, the end."""
    call = ToolCall(f"c{number}", "look", f'{{"n":{number}}}')
    usage = {"input_tokens": 100 + number, "output_tokens": 7, "cache_read_tokens": 50}
    return (
        said(user(f"question {number} {HOSTILE}", id=f"u{number}"), starts_turn=True, keys=(key,) if key else ()),
        said(assistant("I look.", call, model="gpt-5"), body={"usage": usage, "model": "gpt-5", "provider": "openai"}),
        said(tool(f"c{number}", f"result {number} " + "x" * 700, "look"), keys=(f"r{number}",)),
        said(assistant(f"answer {number} 会議")),
        NewEntry("completed"),
    )


def picture(data: str = "QUJD" * 900) -> Message:
    """A message with an image beside its text, and one inside a result."""
    shown = ToolResult("c0", (Text("shot"), Image("image/png", data=data[:40])))
    return Message("user", (Image("image/png", data=data), Text("see"), Thinking("hm", signature="s"), shown))


def fill(store: LedgerStore, turns: int = 4) -> None:
    """Sessions, a fork, a rewind, marks, cuts, manifests, aliases, a subagent, calibrations, queued events, documents,
    leases, an erased thread.
    """
    for number in range(turns):
        cut = Cut("view", number, 5 * number, MessageRef(1, 0), "[left out]", 1, 10, 0) if number in (1, 2) else None
        manifest = AssemblyRow("view", {"id": f"m{number}"}, 5_000 + number)
        store.commit("main", Commit(exchange(number, key=f"k{number}"), cut, manifest))
    store.commit("main", Commit((said(picture(), starts_turn=True), NewEntry("failed", body={"error": "no"}))))
    compaction = {"covers_from": 1, "covers_to": 5, "first_kept": 6, "summary": "They looked."}
    store.commit("main", Commit((NewEntry("compaction", body=compaction),)))
    at = store.head(store.thread_of("main") or 0)[0]
    store.commit("main", Commit((NewEntry("pin", body={"seq": 1, "ord": 0}), NewEntry("undone", body={"of": at}))))
    store.fork("side", "main", 7)
    store.commit("side", Commit((*exchange(50), NewEntry("unpin", body={"seq": 1, "ord": 0}))))
    store.fork("main", "main", 10, reason="rewind")
    store.commit("main", Commit(exchange(60), Cut("view", 3, 10, MessageRef(6, 0), "[more]", 2, 20, 0)))
    store.commit("gone", Commit(exchange(70)))
    store.commit(HOSTILE, Commit((NewEntry("clear"), said(user("x")))), SessionMetadata(title=HOSTILE))
    store.commit("worker", Commit(exchange(80)), SessionMetadata(parent_session="main", parent_turn=2, task="look"))
    store.update_refs(
        [NewRefUpdate("worker", store.thread_of("worker"), "archived", SessionMetadata(status="archived"))]
    )
    store.update_refs((), [Alias("nick", "side", "shorter"), Alias("nack", "nick", "shorter")])
    store.update_refs((), [Alias("nack", None, "taken back")])
    store.calibrate("openai", "gpt-5", StoredCalibration(66, 3, 9_000))
    store.calibrate("openai", "gpt-5", StoredCalibration(67, 9, 9_001))
    events = [("e1", "main"), (HOSTILE, HOSTILE), ("e2", "side"), ("e3", "not begun"), ("of gone", "gone")]
    store.accept_events([NewQueuedEvent(id_, session, f'{{"text":"event {id_}"}}') for id_, session in events])
    store.update_events([key("e1")], "running", expected=["queued"])
    store.update_events([key("e1")], "done", expected=["running"], turn=2)
    store.update_events([key("e2", "side")], "dropped", expected=["queued"], reason=HOSTILE)
    for kind, name in (("agent", "ann"), ("agent", "bob"), ("agent", "ann"), (HOSTILE, HOSTILE)):
        store.put_document(kind, name, {"text": f"document {name}", "more": [1, {"x": None}]})
    store.take_lease("main", "process 1 on elsewhere (x)", 1)
    store.erase([store.thread_of("gone") or 0], ["gone"])


def key(id_: str, session: str = "main") -> str:
    """The key of an event that nobody in particular sent."""
    return event_key(id_, session, "")


def rechained(records: Iterable[Record], tenant: str = "local") -> Iterator[Record]:
    """Records with all their hashes made anew, as a writer that means what they say would have done."""
    kept = list(records)
    digests: dict[tuple[int, int], bytes] = {}
    views: dict[tuple[int, str], bytes] = {}
    moves: dict[str, bytes] = {}
    names: dict[str, bytes] = {}
    head = b""
    for at, record in enumerate(kept):
        if isinstance(record, ThreadRecord):
            root = digests.get((record.parent or 0, record.fork_seq), record.root_hash)
            kept[at], head = replace(record, root_hash=root), root
        elif isinstance(record, EntryRecord):
            columns = (record.thread, record.seq, record.kind, record.turn, record.at_ms, record.body)
            head = chain.entry_hash(head, tenant, columns, record.messages)
            digests[record.thread, record.seq] = head
            kept[at] = replace(record, hash=head)
        elif isinstance(record, DecisionRecord):
            view = (record.thread, record.view)
            row = (tenant, *view, record.number, record.kind, record.at_seq, record.body, record.at_ms)
            views[view] = chain.decision_hash(views.get(view, b""), row)
            kept[at] = replace(record, hash=views[view])
        elif isinstance(record, MoveRecord):
            moves[record.label] = chain.move_hash(tenant, moves.get(record.label, b""), record)
            kept[at] = replace(record, hash=moves[record.label])
        elif isinstance(record, AliasRecord):
            names[record.name] = chain.alias_hash(tenant, names.get(record.name, b""), record)
            kept[at] = replace(record, hash=names[record.name])
    ends = {thread: (seq, digest) for (thread, seq), digest in digests.items()}
    for record in kept:
        if isinstance(record, ThreadRecord) and record.id in ends:
            seq, digest = ends[record.id]
            yield replace(record, head_seq=seq, head_hash=digest)
        else:
            yield record
