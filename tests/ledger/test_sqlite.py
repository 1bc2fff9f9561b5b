"""Appending and reading back: whole, in order, once, and shared between forks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import appending
from ledger.stores import COUNTER, append, behind_its_back, filled, on_writer, replay, texts
from nexus.assembly.record import with_sizes
from nexus.errors import (
    BadReference,
    HeadMoved,
    IdempotencyConflict,
    LedgerBusy,
    LedgerError,
    LedgerUnusable,
    NoSuchSession,
)
from nexus.ledger.codec import decode_parts
from nexus.ledger.sessions import Query, SessionMetadata
from nexus.ledger.sqlite import SqliteLedger, connection
from nexus.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, checksum
from nexus.types.ledger_entries import Commit, MessageRef, NewEntry, SizedMessage
from nexus.types.message import Image, Message, Text, TokenSize, ToolCall, ToolResult, Unknown, assistant, tool, user
from support.errors import has_code

# ------------------------------------------------------------------------------------------------ append and replay


def test_what_was_appended_is_read_back_as_it_was_after_opening_again(tmp_path: Path) -> None:
    said = (
        user("Which?", id="1", at_ms=7, run_id="r", source="human", meta='{"a": 1}'),
        assistant("I look.", ToolCall("c1", "read", '{"b":  2}'), model="gpt-5"),
        Message(
            "tool",
            (
                ToolResult(
                    "c1", (Text("yes"), Image("image/png", data="QUJD", width=3, height=4)), "read", is_error=True
                ),
            ),
        ),
        Message("assistant", (Unknown("audio", '{"type":"audio","x":[1]}'), Text("Done."))),
    )
    first = SqliteLedger(str(tmp_path / "l.db"))
    done = append(first, "main", *said, body={"stop_reason": "end"}, at_ms=99)
    first.close()
    again = SqliteLedger(str(tmp_path / "l.db"))
    (entry,) = replay(again, "main")
    assert tuple(row.message for row in entry.rows) == said
    assert [(row.size, row.ref.seq, row.ref.ord) for row in entry.rows] == [
        (one.size, 1, number) for number, one in enumerate(with_sizes(said, COUNTER))
    ]
    assert (entry.body, entry.at_ms, entry.turn, entry.kind) == ({"stop_reason": "end"}, 99, 1, "messages")
    assert (done.head, done.added, done.turn) == (1, 1, 1)
    assert again.head(done.thread) == (1, entry.hash)


def test_entry_ranges_are_slices_without_gaps(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 10)
    whole = replay(ledger, "main")
    assert [entry.seq for entry in whole] == list(range(1, 11))
    thread = ledger.thread_of("main") or 0
    for after in range(11):
        for until in (None, *range(11)):
            wanted = [entry for entry in whole if after < entry.seq <= (until if until is not None else 99)]
            assert list(ledger.entries(thread, after, until)) == wanted


def test_a_commit_of_several_entries_is_whole_or_absent(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 2)
    before = replay(ledger, "main")
    other = NewEntry(messages=with_sizes((user("another payload"),), COUNTER), keys=("k0",))
    new = NewEntry(messages=with_sizes((user("new"),), COUNTER), keys=("n1",))
    with pytest.raises(IdempotencyConflict):
        ledger.commit("main", Commit((new, other)))
    assert replay(ledger, "main") == before
    assert "n1" not in ledger.known_keys("main")
    with pytest.raises(IdempotencyConflict):
        ledger.commit("main", Commit((new, NewEntry(messages=with_sizes((user("x"),), COUNTER), keys=("n1",)))))
    assert replay(ledger, "main") == before


def test_a_refused_commit_makes_no_session() -> None:
    ledger = SqliteLedger()
    with pytest.raises(HeadMoved):
        append(ledger, "new", user("x"), expected_head=5)
    assert ledger.thread_of("new") is None
    assert ledger.sessions() == []


def test_repeated_key_adds_nothing_and_rejects_another_payload(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 1)
    before = replay(ledger, "main")
    once = append(ledger, "main", user("more"), key="more", at_ms=3)
    again = append(ledger, "main", user("more"), key="more", at_ms=4)
    assert (once.added, again.added, again.head) == (1, 0, once.head)
    with pytest.raises(IdempotencyConflict, match="more"):
        append(ledger, "main", user("other"), key="more")
    with pytest.raises(IdempotencyConflict):
        append(ledger, "main", user("more"), key="more", body={"x": 1})
    assert len(replay(ledger, "main")) == len(before) + 1
    assert append(ledger, "other", user("other"), key="more").added == 1, "a key belongs to its session"


def test_commit_is_rejected_when_the_expected_head_moved(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 3)
    with pytest.raises(HeadMoved) as refusal:
        append(ledger, "main", user("late"), expected_head=2)
    assert (refusal.value.session, refusal.value.expected, refusal.value.actual) == ("main", 2, 3)
    assert len(replay(ledger, "main")) == 3
    assert append(ledger, "main", user("now"), expected_head=3).head == 4


def test_sessions_are_listed_with_their_counts_newest_first(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 3)
    append(ledger, "later", user("x", at_ms=10**12))
    later, main = ledger.sessions()
    assert (later.label, later.messages, later.open_turn) == ("later", 1, True)
    assert (main.label, main.turns, main.messages) == ("main", 3, 6)


def test_tenants_in_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    one, two = (SqliteLedger(str(tmp_path / "l.db"), tenant=name) for name in ("one", "two"))
    append(one, "main", user("of one"), key="k")
    append(two, "main", user("of two"), key="k")
    assert (texts(one, "main"), texts(two, "main")) == (["of one"], ["of two"])


# --------------------------------------------------------------------------------------------------------------- forks


def test_fork_shares_the_path_up_to_its_entry(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 5)
    whole = replay(ledger, "main")
    ledger.fork("side", "main", 3)
    assert replay(ledger, "side") == whole[:3]
    append(ledger, "side", user("differently"))
    append(ledger, "main", user("onwards"))
    assert replay(ledger, "main")[:5] == whole
    assert texts(ledger, "side")[-2:] == ["answer 2", "differently"]
    assert [entry.seq for entry in replay(ledger, "side")] == [1, 2, 3, 4]
    assert replay(ledger, "side")[3].hash != replay(ledger, "main")[3].hash


def test_a_fork_is_one_row_whatever_the_length_of_its_path(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 50)
    with behind_its_back(tmp_path / "l.db") as db:
        before = db.execute("SELECT count(*) FROM message").fetchone()[0]
        ledger.fork("side", "main", 50)
        assert db.execute("SELECT count(*) FROM message").fetchone()[0] == before
        assert db.execute("SELECT count(*) FROM thread").fetchone()[0] == 2


def test_a_fork_of_a_fork_may_begin_before_the_first_fork() -> None:
    ledger = SqliteLedger()
    for number in range(6):
        append(ledger, "main", user(f"m{number}"))
    ledger.fork("one", "main", 4)
    append(ledger, "one", user("one"))
    ledger.fork("two", "one", 2)
    append(ledger, "two", user("two"))
    ledger.fork("three", "one", 5)
    append(ledger, "three", user("three"))
    ledger.fork("empty", "main", 0)
    assert texts(ledger, "two") == ["m0", "m1", "two"]
    assert texts(ledger, "three") == ["m0", "m1", "m2", "m3", "one", "three"]
    assert texts(ledger, "empty") == []


def test_a_fork_continues_the_numbering_of_turns() -> None:
    ledger = SqliteLedger()
    for number in range(4):
        append(ledger, "main", user(f"m{number}"))
    ledger.fork("side", "main", 2)
    assert append(ledger, "side", user("x")).turn == 3


@pytest.mark.parametrize(("source", "at"), [("main", 9), ("main", -1), ("nowhere", 0)])
def test_a_fork_of_what_is_not_there_is_refused_and_makes_no_session(source: str, at: int) -> None:
    ledger = SqliteLedger()
    append(ledger, "main", user("x"))
    with pytest.raises(NoSuchSession if source == "nowhere" else BadReference):
        ledger.fork("side", source, at)
    assert ledger.thread_of("side") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4), st.text(max_size=5)),
        st.tuples(st.just("fork"), st.integers(0, 4), st.integers(0, 12)),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_any_sequence_of_appends_and_forks_reads_back_like_copied_lists(steps: list[tuple[Any, ...]]) -> None:
    ledger = SqliteLedger()
    copies: dict[str, list[str]] = {}
    for number, (what, which, value) in enumerate(steps):
        name = f"s{which}"
        if what == "append":
            append(ledger, name, user(value))
            copies.setdefault(name, []).append(value)
        elif name in copies and value <= len(copies[name]):
            ledger.fork(f"f{number}", name, value)
            copies[f"f{number}"] = copies[name][:value]
    for name, wanted in copies.items():
        assert texts(ledger, name) == wanted
        assert [entry.seq for entry in replay(ledger, name)] == list(range(1, len(wanted) + 1))
    assert {one.label for one in ledger.sessions()} == set(copies)
    ledger.close()


# -------------------------------------------------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    "text",
    ["a\0b", "\ud800", "\udfff\ud800", "\x1a0000", "\x1a", "a\r\nb", "", "👩‍👩‍👧", "\u202e", "x" * 5_000_000],
    ids=[
        "nul",
        "surrogate",
        "wrong pair",
        "escape of an escape",
        "escape",
        "crlf",
        "empty",
        "emoji",
        "override",
        "5 MB",
    ],
)
def test_any_text_comes_back_as_it_was_in_every_column(tmp_path: Path, text: str) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    said = Message(
        "user", (Text(text), ToolCall(text, text, text)), id=text, run_id=text, source=text, model=text, meta=text
    )
    append(ledger, "main", said, body={"error": text}, key=text)
    ledger.commit(
        "titled", Commit((NewEntry(messages=with_sizes((user("x"),), COUNTER)),)), SessionMetadata(title=text)
    )
    ledger.close()
    again = SqliteLedger(str(tmp_path / "l.db"))
    (entry,) = replay(again, "main")
    assert entry.rows[0].message == said
    assert entry.body == {"error": text}
    assert list(again.known_keys("main")) == ([text] if text else [])
    assert next(one.title for one in again.sessions() if one.label == "titled") == text


@pytest.mark.parametrize(
    "label", ["a\0b", "\ud800", "\x1a0000", "", "a/b\n", "n" * 100_000], ids=lambda label: repr(label[:9])
)
def test_any_label_names_a_session(tmp_path: Path, label: str) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    append(ledger, label, user("here"))
    append(ledger, "a", user("another"))
    assert texts(ledger, label) == ["here"]
    assert {one.label for one in ledger.sessions()} == {label, "a"}
    ledger.fork(f"{label}~1", label, 1)
    assert texts(ledger, f"{label}~1") == ["here"]


def test_image_is_stored_once(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    image = Image("image/png", data="QUJD" * 100_000, width=2, height=2)
    for number in range(20):
        append(ledger, "main" if number % 2 else "other", Message("user", (image,)), tool("c", "t"))
    append(ledger, "main", Message("tool", (ToolResult("c", (image,)),)))
    with behind_its_back(tmp_path / "l.db") as db:
        assert db.execute("SELECT count(*), sum(length(data)) FROM blob").fetchone() == (1, 400_000)
    assert {
        row.message.parts[0] for entry in replay(ledger, "other") for row in entry.rows if row.message.role == "user"
    } == {image}
    assert replay(ledger, "main")[-1].rows[0].message.parts == (ToolResult("c", (image,)),)


def test_unknown_part_kinds_are_read_as_unknown() -> None:
    parts = decode_parts('[{"type":"video","url":"u"},{"type":"text","text":"t"}]', lambda _: b"")
    assert parts == (Unknown("video", '{"type": "video", "url": "u"}'), Text("t"))


# ---------------------------------------------------------------------------------------------------- the file itself


def test_append_waits_for_the_disk_after_a_lease_that_did_not(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 1)
    ledger.take_lease("main", "somebody", 1_000)
    writer = ledger._pool._own_writer()._db
    assert writer.value("PRAGMA synchronous") == 1, "NORMAL"
    ledger.update_events(["none"], "failed", expected=("running",))
    assert writer.value("PRAGMA synchronous") == 2, "FULL"
    ledger.update_events(["none"], "running", expected=("queued",))
    assert writer.value("PRAGMA synchronous") == 1, "NORMAL"
    append(ledger, "main", user("further"))
    assert writer.value("PRAGMA synchronous") == 2, "FULL"


def test_file_has_the_settings_of_durable_appends(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 1)
    assert on_writer(ledger, "PRAGMA synchronous") == 2, "FULL"
    assert on_writer(ledger, "PRAGMA foreign_keys") == 1
    assert on_writer(ledger, "PRAGMA mmap_size") == 0
    assert on_writer(ledger, "PRAGMA trusted_schema") == 0
    with behind_its_back(tmp_path / "l.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION
        assert db.execute("SELECT version, checksum FROM migration").fetchall() == [
            (number, checksum(script)) for number, script in enumerate(MIGRATIONS, 1)
        ]


def test_rows_cannot_refer_to_what_is_not_there(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "l.db", 1)
    with pytest.raises(LedgerError, match="FOREIGN KEY"):
        on_writer(ledger, "INSERT INTO entry VALUES ('local', 99, 1, 'messages', 1, 0, '{}', x'00')")
    with pytest.raises(LedgerError, match="FOREIGN KEY"):
        on_writer(ledger, "DELETE FROM entry")


def test_a_ledger_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    filled(path, 1).close()
    with behind_its_back(path) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.read_bytes()
    with pytest.raises(LedgerUnusable, match="upgrade Nexus", check=has_code("ledger_too_new")):
        SqliteLedger(str(path))
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with behind_its_back(path) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    before = path.read_bytes()
    with pytest.raises(LedgerUnusable, match="not touched", check=has_code("not_a_ledger")):
        SqliteLedger(str(path))
    assert path.read_bytes() == before


def test_busy_error_follows_the_wait_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 50)
    ledger = filled(tmp_path / "l.db", 1)
    with behind_its_back(tmp_path / "l.db") as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusy, match="try again"):
            append(ledger, "main", user("x"))
        assert len(replay(ledger, "main")) == 1, "reading goes on"
        db.execute("ROLLBACK")
    assert append(ledger, "main", user("x")).head == 2


# ------------------------------------------------------------------------------------------------- many at one time


def test_threads_share_a_ledger_and_every_append_is_there_without_gaps(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))

    def work(name: str) -> None:
        for number in range(25):
            append(ledger, "main", user(f"{name} {number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(ledger, "main")
    assert [entry.seq for entry in replay(ledger, "main")] == list(range(1, 101))
    for name in "abcd":
        assert [text for text in found if text.startswith(name)] == [f"{name} {number}" for number in range(25)]


def started(path: Path, session: str, name: str, count: int) -> subprocess.Popen[str]:
    """A process that appends, once it is given a line."""
    program = [sys.executable, appending.__file__, str(path), session, name, str(count)]
    return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_append_to_one_session_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    processes = [started(path, "main", name, 60) for name in ("one", "two")]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    entries = replay(SqliteLedger(str(path)), "main")
    assert [entry.seq for entry in entries] == list(range(1, 121))
    assert [entry.turn for entry in entries] == list(range(1, 121))
    for name in ("one", "two"):
        own = [
            tuple(row.message for row in entry.rows) for entry in entries if entry.rows[0].message.id.startswith(name)
        ]
        assert own == [appending.messages(name, number) for number in range(60)]


@pytest.mark.slow
def test_message_over_50_megabytes_is_stored_and_found(tmp_path: Path) -> None:
    said = "word \x00 \ud83d 会議 " * 2_800_000 + "needle"
    assert len(said.encode("utf-8", "surrogatepass")) > 50_000_000
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    ledger.commit("main", Commit((NewEntry(messages=(SizedMessage(user(said), TokenSize(1, 1, 1)),)),)))
    (entry,) = ledger.entries(1)
    assert entry.rows[0].message.text() == said
    assert [hit.ref for hit in ledger.search(Query("needle"))] == [MessageRef(1, 0)]
    ledger.close()


def test_search_ranks_the_newest_messages_and_lists_older_ones_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_RANKED", 3)
    other = SqliteLedger(str(tmp_path / "l.db"), tenant="other")
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    for number, text in enumerate(("word", "word a b c d e f", "word word word", "word a b c", "word a", "word a b")):
        append(ledger, f"s{number}", user(text))
        append(other, f"o{number}", user("word"))
    found = [hit.sessions[0] for hit in ledger.search(Query("word"))]
    assert found == ["s4", "s5", "s3", "s2", "s1", "s0"]
    pages = [hit.sessions[0] for at in range(0, 6, 2) for hit in ledger.search(Query("word", limit=2, offset=at))]
    assert pages == found
    assert [hit.sessions[0] for hit in ledger.search(Query("word d"))] == ["s1"]
    ledger.close()
    other.close()
