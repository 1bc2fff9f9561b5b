"""Checks of appending and reading back: everything as it was given, in order, in numbers without gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nexus.errors import BadReference, NoSuchSession
from nexus.ledger import chain
from nexus.ledger.records import BlobRecord, EntryRecord
from nexus.ledger.sessions import Alias, NewRefUpdate, SessionMetadata
from nexus.testing.ledger_conformance.harness import (
    HOSTILE,
    LedgerCase,
    append,
    compaction,
    entries,
    entry,
    equal,
    manifest,
    mark,
    put,
    raises,
    read_messages,
    size_of,
    texts,
    thread_of,
    with_sizes,
)
from nexus.types.ledger_entries import Commit, Committed, MessageRef, NewEntry, SizedMessage
from nexus.types.message import (
    Image,
    Message,
    Note,
    Text,
    Thinking,
    TokenSize,
    ToolCall,
    ToolResult,
    Unknown,
    assistant,
    tool,
    user,
)


def check_first_commit(case: LedgerCase) -> None:
    """The first commit of a session makes a thread, entry 1 and turn 1; threads are numbered 1, 2, 3."""
    store = case.store
    equal(store.thread_of("main"), None, "the thread of a session that is not there")
    equal(append(store, "main", "hello"), Committed(1, 1, 1, 1), "the first commit")
    equal(append(store, "main", "again"), Committed(1, 2, 1, 2), "the second commit")
    equal(append(store, "other", "hello"), Committed(2, 1, 1, 1), "the first commit of another session")
    equal([row.id for row in store.threads()], [1, 2], "the numbers of the threads")


def check_every_field(case: LedgerCase) -> None:
    """A message comes back with every field, part and count as it was given."""
    parts = (
        Text("Look."),
        Image("image/png", data="QUJD", width=3, height=4),
        Image("image/jpeg", url="https://example.org/a.jpg"),
        Thinking("hm", "signed", "opaque"),
        ToolCall("c1", "read", '{"a":  1}'),
        ToolResult("c1", (Text("yes"), Image("image/gif", data="R0lG")), "read", is_error=True),
        Note("memory", "a note", "MEMORY.md"),
        Unknown("audio", '{"type":"audio","x":[1]}'),
    )
    message = Message("assistant", parts, "id-1", 77, "run-1", "human", "model-1", '{"a": [1]}')
    body = {"stop_reason": "end", "usage": {"input_tokens": 3}, "list": [1, None, True, 2**40]}
    committed = put(case.store, "main", NewEntry("messages", with_sizes("first", message), body, 99, starts_turn=True))
    (read,) = case.store.entries(committed.thread)
    equal([row.message for row in read.rows], [user("first"), message], "the messages")
    equal([row.size for row in read.rows], [size_of(user("first")), size_of(message)], "their counts")
    equal([row.ref for row in read.rows], [MessageRef(1, 0), MessageRef(1, 1)], "their places")
    equal((read.seq, read.kind, read.turn, read.at_ms), (1, "messages", 1, 99), "the entry")
    equal(read.body, body, "the entry's body")


def check_hostile_text(case: LedgerCase) -> None:
    """NUL, lone surrogates and U+001A survive wherever text is allowed, and make no two names one."""
    store = case.store
    names = (HOSTILE, HOSTILE.replace("\x00", ""), HOSTILE.replace("\x00", "\x1a0000"), "\ud800", "\x1ad800")
    for number, name in enumerate(names):
        metadata = SessionMetadata(title=name, persona=name, task=name, origin=name, routing_key=name)
        message = Message("user", (Text(name), ToolCall(name, name, name)), name, 1, name, name, name, name)
        new = NewEntry("messages", with_sizes(message), {name: [name, number]}, keys=(name,))
        committed = store.commit(name, Commit((new,), assembly=manifest(name, number)), metadata)
        (read,) = store.entries(committed.thread)
        equal((read.rows[0].message, read.body), (message, new.body), f"what was appended to session {name!r}")
        equal(store.known_keys(name), {name: 1}, f"the keys of session {name!r}")
        equal(store.holders(name), [(committed.thread, 1)], f"the holders of the key {name!r}")
        moves = store.ref_updates(name)
        equal([(move.label, move.metadata) for move in moves], [(name, metadata)], f"the moves of session {name!r}")
        last = store.last_assembly(committed.thread, name)
        equal(last.manifest if last else None, manifest(name, number).manifest, f"the manifest of view {name!r}")
        store.update_refs([NewRefUpdate(name, committed.thread, name)], [Alias(f"alias of {name}", name, name)])
        equal(store.resolve(f"alias of {name}"), name, "where an alias leads")
        reasons = [alias.reason for alias in store.aliases() if alias.target == name]
        equal(reasons, [name], "the reason of an alias")
        equal(store.ref_updates(name)[-1].reason, name, "a move's reason")
    equal(sorted(info.label for info in store.sessions()), sorted(names), "the labels")


def check_arguments(case: LedgerCase) -> None:
    """Tool arguments come back as the text that was received, whatever it is."""
    received = (
        "null",
        "",
        '{"n": ' + "9" * 5_000 + "}",
        '{"n": NaN, "m": 1e999, "i": -Infinity}',
        '{"path": "/cut o',
        '{"a": 1, "a": 2}',
        "[" * 100_000 + "]" * 100_000,
        '"\\ud800 \x00"',
        HOSTILE,
    )
    append(case.store, "main", *(assistant("", ToolCall(f"c{n}", "f", text)) for n, text in enumerate(received)))
    (read,) = entries(case.store, "main")
    for row, text in zip(read.rows, received, strict=True):
        equal([call.arguments for call in row.message.calls()], [text], "the arguments")


def check_unreadable_values(case: LedgerCase) -> None:
    """Values that are not of their declared types, or nested too deep to be read everywhere, are refused."""
    append(case.store, "main", "one")
    before = list(case.store.dump())
    deep: dict[str, object] = {}
    for _ in range(985):
        deep = {"in": deep}
    wrong: tuple[Any, ...] = (
        Message("user", ("plain text",)),  # pyright: ignore[reportArgumentType]
        Message("user", (Text(7),)),  # pyright: ignore[reportArgumentType]
        Message("user", (Text("x"),), at_ms=True),
        Message("user", (Text("x"),), at_ms=1.5),  # pyright: ignore[reportArgumentType]
        Message("user", (Text("x"),), id=None),  # pyright: ignore[reportArgumentType]
        Message("user", (Text("x"),), meta={}),  # pyright: ignore[reportArgumentType]
        Message("user", None),  # pyright: ignore[reportArgumentType]
    )
    entries = [NewEntry(messages=(SizedMessage(message, TokenSize(1, 1, 1)),)) for message in wrong]
    entries += [NewEntry(body=deep), NewEntry(body=None), NewEntry(body=[1])]  # pyright: ignore[reportArgumentType]
    for new in entries:
        with raises(BadReference, f"an entry with {new.messages or type(new.body)}", code="bad_entry"):
            put(case.store, "main", new)
    equal(list(case.store.dump()), before, "what is stored")


def check_same_ids(case: LedgerCase) -> None:
    """Ids of messages and of tool calls may occur more than once."""
    messages = (
        user("one", id="same"),
        assistant("", ToolCall("call", "f", "{}"), ToolCall("call", "g", "{}"), id="same"),
        tool("call", "first", id="same"),
        tool("call", "second", id="same"),
    )
    for _ in range(2):
        append(case.store, "main", *messages)
    read = read_messages(case.store, "main")
    equal(read, [*messages, *messages], "the messages")


def check_images_once(case: LedgerCase) -> None:
    """An image is stored once, however often it is shown, and comes back in messages and results of tools."""
    image = Image("image/png", data="QUJD" * 100)
    messages = (Message("user", (image, image)), Message("tool", (ToolResult("c", (Text("see"), image)),)))
    for session in ("main", "main", "other"):
        append(case.store, session, *messages)
    read = read_messages(case.store, "main")
    equal(read, [*messages, *messages], "the messages")
    blobs = [record for record in case.store.dump() if isinstance(record, BlobRecord)]
    equal([blob.data for blob in blobs], [b"QUJD" * 100], "the stored images")


def check_empty_content(case: LedgerCase) -> None:
    """Entries without messages, messages without parts and parts without text are kept."""
    messages = (Message("user", ()), user(""), Message("assistant", (Text(""), Text(""))), Message("system", ()))
    put(case.store, "main", entry(), entry(*messages))
    read = [[row.message for row in stored.rows] for stored in entries(case.store, "main")]
    equal(read, [[], list(messages)], "the messages")
    equal(put(case.store, "bare"), Committed(2, 0, 0, 0), "a commit of nothing")
    equal(list(case.store.entries(2)), [], "the entries of a session without any")
    equal(case.store.head(2), (0, case.store.thread(2).root_hash), "its head")


def check_ranges(case: LedgerCase) -> None:
    """Entries are numbered from 1 without gaps, and a range of them is a slice of the whole."""
    for number in range(6):
        append(case.store, "main", f"{number}")
    all_entries = entries(case.store, "main")
    equal([stored.seq for stored in all_entries], [1, 2, 3, 4, 5, 6], "the numbers")
    for after in range(8):
        for until in (None, *range(8)):
            wanted = [stored for stored in all_entries if after < stored.seq <= (99 if until is None else until)]
            equal(list(case.store.entries(1, after, until)), wanted, f"the entries after {after} until {until}")


def check_clocks(case: LedgerCase) -> None:
    """Times are the clock's or the caller's, and order is by seq though clocks go backwards."""
    for now in (5_000, 1_000, 9_000, 0):
        case.clock.now_ms = now
        append(case.store, "main", f"at {now}")
    append(case.store, "main", "as told", at_ms=3)
    read = entries(case.store, "main")
    equal([stored.at_ms for stored in read], [5_000, 1_000, 9_000, 0, 3], "the times")
    equal(texts(case.store, "main"), ["at 5000", "at 1000", "at 9000", "at 0", "as told"], "the order")
    equal(case.store.ref_updates("main")[0].at_ms, 5_000, "when the session was made")


def check_turns(case: LedgerCase) -> None:
    """An entry that starts a turn raises its number; completed, failed and clear close the turn."""
    steps: tuple[tuple[NewEntry, int, bool], ...] = (
        (entry("before any turn", starts_turn=False), 0, False),
        (entry("asked"), 1, True),
        (entry("answered", starts_turn=False), 1, True),
        (mark("pin", seq=2, ord=0), 1, True),
        (compaction(1, 2, 3), 1, True),
        (mark("undone", of=5), 1, True),
        (mark("unpin", seq=2, ord=0), 1, True),
        (mark("completed"), 1, False),
        (mark("pin", seq=2, ord=0), 1, False),
        (entry("late", starts_turn=False), 1, True),
        (mark("failed", error="no"), 1, False),
        (entry("next"), 2, True),
        (mark("clear"), 2, False),
        (entry("third"), 3, True),
    )
    for number, (new, turn, open_turn) in enumerate(steps, 1):
        equal(put(case.store, "main", new), Committed(1, number, 1, turn), f"the commit of entry {number}")
        row = case.store.thread(1)
        equal((row.turn, row.open_turn), (turn, open_turn), f"turn, and whether it is open, after entry {number}")
    equal([stored.turn for stored in case.store.entries(1)], [turn for _, turn, _ in steps], "the entries' turns")


def check_totals(case: LedgerCase) -> None:
    """A thread's row has the totals of its own rows: messages, base tokens, checkpoints, first and last time."""
    put(case.store, "main", entry("four", "eight ...", at_ms=50), mark("pin", seq=1, ord=0))
    case.clock.now_ms = 20
    put(case.store, "main", entry("x", at_ms=90), mark("clear"))
    row = case.store.thread(1)
    equal((row.messages, row.tokens, row.marks), (3, 4 + 9 + 1 + 3 * 3, 2), "messages, tokens and marks")
    equal((row.first_ms, row.last_ms), (20, 1_700_000_000_000), "the first and the last time")
    equal((row.head_seq, row.head_hash), case.store.head(1), "the head")
    equal((row.parent, row.fork_seq, row.erased), (None, 0, False), "where it begins")


def check_instructions(case: LedgerCase) -> None:
    """Instructions are the system messages before all others."""
    system = Message("system", (Text("be kind"),))
    append(case.store, "main", system, system, "hello", system)
    append(case.store, "main", system)
    append(case.store, "without", "hello", system)
    actual = [(row.ref, row.message) for row in case.store.instructions(1)]
    equal(actual, [(MessageRef(1, 0), system), (MessageRef(1, 1), system)], "the instructions")
    equal(list(case.store.instructions(2)), [], "the instructions of a session that begins otherwise")
    put(case.store, "empty")
    equal(list(case.store.instructions(3)), [], "the instructions of an empty session")


def check_chained(case: LedgerCase) -> None:
    """Each entry's hash covers all its columns and the hash before, from the thread's root on."""
    put(case.store, "main", entry("one", "two"), mark("clear"), entry("three", keys=("k",)))
    before = chain.root_hash("local", 1)
    equal(case.store.path(1)[0].root, before, "the root hash")
    records = [record for record in case.store.dump() if isinstance(record, EntryRecord)]
    for record, read in zip(records, case.store.entries(1), strict=True):
        columns = (record.thread, record.seq, record.kind, record.turn, record.at_ms, record.body)
        before = chain.entry_hash(before, "local", columns, record.messages)
        equal((record.hash, read.hash), (before, before), f"the hash of entry {record.seq}")
    equal(case.store.head(1), (3, before), "the head")


def check_unknown_thread(case: LedgerCase) -> None:
    """A thread that is not there is NoSuchSession, and a session that is not there is None or nothing."""
    store = case.store
    reads: tuple[Callable[[int], object], ...] = (
        store.thread,
        store.head,
        store.path,
        lambda thread: list(store.entries(thread)),
    )
    for read in reads:
        with raises(NoSuchSession, "reading thread 7"):
            read(7)
    actual = (
        store.resolve("no"),
        store.thread_of("no"),
        store.session("no"),
        store.ref_updates("no"),
        store.known_keys("no"),
    )
    equal(actual, (None, None, None, [], {}), "what is known of a session that is not there")
    equal((store.holders("k"), store.calibration("p", "m")), ([], None), "what is known of a key and of a model")
    append(store, "main", "hello")
    thread = thread_of(store, "main")
    equal(
        (store.checkpoints(thread), store.assemblies(thread)), ([], []), "marks and manifests of a session without any"
    )
    equal((store.last_cut(thread, "v"), store.last_assembly(thread, "v")), (None, None), "its cut and its manifest")
