"""What one does with sessions, on both stores: turns, forks, undoing, names, and deletion for good."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.stores import COUNTER, behind_its_back
from nexus.assembly.record import with_sizes
from nexus.errors import BadReference, CompactionSuperseded, LedgerError, NoSuchSession
from nexus.ledger import maintenance as care
from nexus.ledger.history_operations import Ledger
from nexus.ledger.records import MoveRecord
from nexus.ledger.replay import messages_from
from nexus.ledger.sessions import NewRefUpdate, RefUpdate, SessionMetadata
from nexus.ledger.shared_sql import read_sessions
from nexus.ledger.sqlite import SqliteLedger, connection, files
from nexus.ledger.unrecorded_replies import UnrecordedReply
from nexus.types.ledger_entries import Commit, Compaction, MessageRef, NewEntry, SizedMessage
from nexus.types.message import Image, Message, ToolCall, assistant, tool, user
from support.errors import has_code


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    return Ledger(SqliteLedger(str(tmp_path / "l.db")) if request.param == "file" else SqliteLedger())


def said(*messages: Message | str) -> tuple[SizedMessage, ...]:
    return with_sizes([user(one) if isinstance(one, str) else one for one in messages], COUNTER)


def talk(ledger: Ledger, session: str, *pairs: str) -> None:
    """One completed turn for each text."""
    for text in pairs:
        ledger.open_turn(session, said(text, assistant(f"to {text}")))
        ledger.close_turn(session)


def texts(ledger: Ledger, session: str) -> list[str]:
    return [row.message.text() for entry in ledger.entries(session) for row in entry.rows]


def test_turn_is_pending_then_streaming_then_completed(ledger: Ledger) -> None:
    known = {"model": "gpt-5", "provider": "openai", "role": "worker", "toolset": "web", "tools": ["find"]}
    ledger.open_turn("main", said("go"), permissions=["net"], source_event="e1", workspace="/w", **known)
    assert ledger.turns("main")[-1].status == "pending"
    usage = {
        "input_tokens": 10,
        "cache_read_tokens": 7,
        "cache_write_tokens": 2,
        "output_tokens": 3,
        "reasoning_tokens": 1,
    }
    ledger.append("main", said(assistant("", ToolCall("c", "find", "null"))), body={"usage": usage})
    assert ledger.turns("main")[-1].status == "streaming"
    assert [call.status for call in ledger.calls("main")] == ["pending"]
    ledger.append("main", said(tool("c", "found", "find")), body={"usage": usage, "permissions_used": ["net"]})
    ledger.close_turn("main")
    (turn,) = ledger.turns("main")
    assert (turn.status, turn.messages, turn.calls, turn.first_seq, turn.last_seq) == ("completed", 3, 1, 1, 4)
    assert (turn.model, turn.provider, turn.role, turn.toolset) == ("gpt-5", "openai", "worker", "web")
    assert (turn.tools_available, turn.permissions_granted, turn.permissions_used) == (("find",), ("net",), ("net",))
    assert (turn.input_tokens, turn.cache_read_tokens, turn.cache_write_tokens) == (20, 14, 4)
    assert (turn.output_tokens, turn.reasoning_tokens) == (6, 2)
    assert (turn.source_event, turn.workspace) == ("e1", "/w")
    (call,) = ledger.calls("main")
    assert (call.name, call.status, call.ref, call.result) == (
        "find",
        "completed",
        MessageRef(2, 0),
        MessageRef(3, 0),
    )
    with pytest.raises(BadReference, match="no open turn", check=has_code("bad_entry")):
        ledger.close_turn("main")


def test_open_turn_is_interrupted_for_other_ledgers(ledger: Ledger) -> None:
    ledger.open_turn("main", said("go", assistant("", ToolCall("c", "find", "{}"))))
    assert ledger.turns("main")[0].status == "streaming"
    other = Ledger(ledger.store)
    assert other.turns("main")[0].status == "interrupted"
    assert other.calls("main")[0].status == "interrupted"
    ledger.close_turn("main", error="the network is gone")
    assert (other.turns("main")[0].status, other.turns("main")[0].error) == ("failed", "the network is gone")


def test_repeated_key_is_known_after_later_appends(ledger: Ledger) -> None:
    first = ledger.append("main", said("one"), key="k", expected_head=0)
    ledger.append("main", said("two"))
    again = ledger.append("main", said("one"), key="k", expected_head=0)
    assert (first.added, again.added, texts(ledger, "main")) == (1, 0, ["one", "two"])


def test_appends_go_on_while_a_summary_is_made_and_stay_after_it(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    planned, asked = threading.Event(), threading.Event()
    done: list[Any] = []

    def compacts() -> None:
        plan = Compaction(1, 2, 3, "")
        planned.set()
        assert asked.wait(600)  # the model takes its time; no lock is held
        done.append(ledger.compact("main", Compaction(1, 2, plan.first_kept, "about one"), after_checkpoint=0))

    worker = threading.Thread(target=compacts)
    worker.start()
    assert planned.wait(600)
    talk(ledger, "main", "three")
    asked.set()
    worker.join()
    assert done[0].added == 1
    visible = ledger.visible("main")
    assert visible.summary == "about one"
    assert [row.message.text() for row in visible.rows] == ["two", "to two", "three", "to three"]
    assert texts(ledger, "main") == ["one", "to one", "two", "to two", "three", "to three"]


def test_superseded_compaction_is_rejected_and_changes_nothing(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    ledger.compact("main", Compaction(1, 2, 3, "first"), after_checkpoint=0)
    before = list(ledger.store.dump())
    with pytest.raises(CompactionSuperseded, match="plan again"):
        ledger.compact("main", Compaction(1, 2, 3, "second"), after_checkpoint=0)
    assert list(ledger.store.dump()) == before


def test_undo_and_redo_change_what_is_shown_and_no_row(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    ledger.compact("main", Compaction(1, 2, 3, "so far"), after_checkpoint=0)
    rows = [record for record in ledger.store.dump() if getattr(record, "seq", 0) in range(1, 6)]
    ledger.undo("main")
    assert len(ledger.visible("main").rows) == 4
    assert ledger.live("main").undone_at == 6
    with pytest.raises(BadReference, match="no compaction", check=has_code("bad_entry")):
        ledger.undo("main")
    ledger.redo("main")
    assert ledger.visible("main").summary == "so far"
    assert ledger.live("main").undone_at == 0
    with pytest.raises(BadReference, match="no undo", check=has_code("bad_entry")):
        ledger.redo("main")
    assert [record for record in ledger.store.dump() if getattr(record, "seq", 0) in range(1, 6)] == rows


def test_fork_and_rewind_start_at_the_end_of_any_turn(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two", "three")
    ledger.fork("side", "main", turn=1)
    assert texts(ledger, "side") == ["one", "to one"]
    ledger.fork("whole", "main")
    assert texts(ledger, "whole") == texts(ledger, "main")
    ledger.rewind("main", turn=2)
    talk(ledger, "main", "another three")
    assert texts(ledger, "main")[-2:] == ["another three", "to another three"]
    assert [move.reason for move in ledger.sessions.ref_updates("main")] == ["created", "rewind to entry 4"]
    old = ledger.sessions.ref_updates("main")[0].thread
    assert old is not None and len(list(ledger.store.entries(old))) == 6
    assert [(one.first_turn, one.last_turn) for one in ledger.sessions.ancestry("main")] == [(1, 2), (3, 3)]
    for wrong in ({"turn": 9}, {"turn": -1}, {"seq": 99}):
        with pytest.raises(BadReference):
            ledger.fork("wrong", "main", **wrong)
    with pytest.raises(BadReference, match="exists"):
        ledger.fork("side", "main")
    with pytest.raises(NoSuchSession):
        ledger.fork("new", "nobody")


@pytest.mark.parametrize(
    "update",
    [
        RefUpdate("s", 1, 1, SessionMetadata(title="T"), "created", 0),
        NewRefUpdate("s", 1, "created", SessionMetadata(title="T")),
        MoveRecord("s", 1, 1, '{"title":"T"}', "created", 0, b""),
        UnrecordedReply("local", "s", 1, None, Commit(), SessionMetadata(title="T")),
    ],
    ids=lambda update: type(update).__name__,
)
def test_metadata_has_the_key_facts_in_stored_and_exported_forms(update: msgspec.Struct) -> None:
    stored = msgspec.to_builtins(update)
    assert stored["facts"] in ({"title": "T"}, '{"title":"T"}') and "metadata" not in stored
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(update), type=type(update)) == update


def test_a_subagents_session_names_the_turn_and_call_that_spawned_it(ledger: Ledger) -> None:
    ledger.open_turn("main", said("go", assistant("", ToolCall("c1", "spawn", "{}"))))
    metadata = SessionMetadata(
        parent_session="main", parent_turn=1, parent_call_id="c1", task="look", task_status="running"
    )
    ledger.sessions.create("sub", metadata)
    assert ledger.sessions.metadata("sub") == metadata
    assert [one.label for one in ledger.sessions.spawned("main")] == ["sub"]
    ledger.sessions.update("sub", task_status="done")
    assert ledger.sessions.metadata("sub").task_status == "done"
    for wrong in (
        {"parent_session": "nobody"},
        {"parent_turn": 7},
        {"parent_call_id": "c9"},
        {"parent_session": "sub"},
    ):
        with pytest.raises(BadReference):
            ledger.sessions.update("sub", **wrong)
    with pytest.raises(BadReference, match=r"its own parent|lead back"):
        ledger.sessions.update("main", parent_session="sub")
    with pytest.raises(BadReference, match="exists"):
        ledger.sessions.create("sub")


def test_rename_and_merge_do_not_mix_histories(ledger: Ledger) -> None:
    talk(ledger, "dm:telegram:7", "hello")
    talk(ledger, "dm:alice", "good day")
    ledger.sessions.merge("dm:telegram:7", "dm:alice", "the same person")
    assert ledger.resolve("dm:telegram:7") == "dm:alice"
    assert texts(ledger, "dm:telegram:7") == ["good day", "to good day"]
    assert texts(ledger, "dm:telegram:7~merged") == ["hello", "to hello"]
    talk(ledger, "dm:telegram:7", "again")
    assert texts(ledger, "dm:alice")[-2] == "again"
    ledger.sessions.rename("dm:alice", "dm:alice@example", "promoted")
    assert ledger.resolve("dm:telegram:7") == "dm:alice@example"
    assert {alias.name: alias.reason for alias in ledger.store.aliases()} == {
        "dm:telegram:7": "the same person", "dm:alice": "promoted",
    }  # fmt: skip
    with pytest.raises(BadReference, match="same session"):
        ledger.sessions.merge("dm:alice", "dm:telegram:7")


def test_archived_and_deleted_sessions_are_kept_and_not_listed(ledger: Ledger) -> None:
    talk(ledger, "main", "one")
    ledger.sessions.archive("main")
    assert ledger.sessions.list() == []
    talk(ledger, "main", "two")
    assert [one.status for one in ledger.sessions.list(every=True)] == ["archived"]
    ledger.sessions.delete("main")
    assert ledger.search("one") == []
    ledger.sessions.restore("main")
    assert [hit.sessions for hit in ledger.search("one", roles=["user"])] == [("main",)]


# deletion for good ---------------------------------------------------------------------------------------------------

SECRET = "the zanzibar password is heliotrope"


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def test_after_a_deletion_for_good_the_file_no_longer_holds_the_text(tmp_path: Path) -> None:
    ledger = Ledger(SqliteLedger(str(tmp_path / "l.db")))
    talk(ledger, "keep", *(f"harmless words number {number} go here" for number in range(60)))
    for number in range(40):
        talk(ledger, "main", f"{SECRET} {number} " + "filler " * (number * 40))
    ledger.rewind("main", turn=20)
    talk(ledger, "main", f"{SECRET} after the rewind")
    ledger.sessions.rename("main", "heliotrope-project")
    ledger.compact("heliotrope-project", Compaction(1, 2, 3, f"summary: {SECRET}"), after_checkpoint=0)
    assert b"heliotrope" in everything_in(tmp_path)
    erased = ledger.upkeep.erase("heliotrope-project")
    assert erased.needles > 0 and erased.remaining == 0
    assert len(erased.threads) == 2
    held = everything_in(tmp_path)
    assert b"zanzibar" not in held and b"heliotrope" not in held
    with behind_its_back(tmp_path / "l.db") as db:
        db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab('main', 'search', 'row')").fetchall()
        terms = {row[0] for row in db.execute("SELECT term FROM temp.terms")}
    assert "harmless" in terms and not terms & {"zanzibar", "heliotrope", "filler"}
    assert ledger.sessions.list(every=True)[0].label == "keep"
    assert ledger.search("harmless", limit=99) != [] and ledger.search("zanzibar") == []
    for name in ("main", "heliotrope-project"):
        with pytest.raises(NoSuchSession):
            ledger.entries(name)
    talk(ledger, "main", "a new beginning")
    assert ledger.thread("main") not in erased.threads


def test_erase_is_rejected_while_a_fork_depends_on_the_thread(ledger: Ledger) -> None:
    talk(ledger, "main", "one")
    ledger.fork("side", "main")
    before = list(ledger.store.dump())
    with pytest.raises(LedgerError, match="side", check=has_code("forks_depend")):
        ledger.upkeep.erase("main")
    assert list(ledger.store.dump()) == before
    gone = ledger.upkeep.erase("main", with_forks=True)
    assert len(gone.threads) == 2
    assert ledger.sessions.list(every=True) == []


def test_erase_is_incomplete_while_a_reader_has_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection, files):
        monkeypatch.setattr(module, "BUSY_TIMEOUT_MS", 50)
    ledger = Ledger(SqliteLedger(str(tmp_path / "l.db")))
    talk(ledger, "main", f"{SECRET} and more of it")
    with behind_its_back(tmp_path / "l.db") as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM message").fetchall()
        with pytest.raises(LedgerError, match="nexus ledger vacuum", check=has_code("erase_incomplete")):
            ledger.upkeep.erase("main")
        db.execute("COMMIT")
    assert ledger.sessions.list(every=True) == []
    talk(ledger, "other", "what stays")
    done = care.vacuum(tmp_path / "l.db")
    assert done.after_bytes <= done.before_bytes
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file
    assert texts(ledger, "other")[0] == "what stays"
    assert care.verify(tmp_path / "l.db") == []


def test_a_tenants_data_is_deleted_and_no_other_tenants(tmp_path: Path) -> None:
    file = str(tmp_path / "l.db")
    mine, theirs = Ledger(SqliteLedger(file, tenant="acme")), Ledger(SqliteLedger(file, tenant="other"))
    talk(mine, "main", SECRET)
    talk(theirs, "main", "their own words are many")
    assert texts(theirs, "main")[0] == "their own words are many"
    mine.upkeep.erase_everything()
    assert mine.sessions.list(every=True) == [] and all(row.erased for row in mine.store.threads())
    assert texts(theirs, "main")[0] == "their own words are many"
    assert b"heliotrope" not in everything_in(tmp_path)


def test_pins_are_inherited_up_to_the_fork_and_taken_back_alone(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    ledger.pin("main", MessageRef(1, 0), "the task")
    ledger.fork("side", "main")
    ledger.pin("main", MessageRef(3, 1))
    assert ledger.live("side").pins == (MessageRef(1, 0),)
    ledger.unpin("side", MessageRef(1, 0))
    assert ledger.live("side").pins == ()
    assert ledger.live("main").pins == (MessageRef(1, 0), MessageRef(3, 1))
    for place in (MessageRef(9, 0), MessageRef(1, 5), MessageRef(0, 0)):
        with pytest.raises(BadReference, check=has_code("bad_entry")):
            ledger.pin("main", place)
    with pytest.raises(BadReference, match="not pinned", check=has_code("bad_entry")):
        ledger.unpin("main", MessageRef(1, 1))


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**5000, object()], ids=["not a number", "endless", "huge", "no JSON"]
)
def test_a_body_that_json_has_no_exact_form_for_is_refused_whole(ledger: Ledger, value: object) -> None:
    talk(ledger, "main", "one")
    before = list(ledger.store.dump())
    with pytest.raises(BadReference, match="or text", check=has_code("bad_entry")):
        ledger.store.commit("main", Commit((NewEntry(messages=said("x")), NewEntry(body={"value": value}))))
    assert list(ledger.store.dump()) == before


def test_a_deleted_threads_number_is_not_used_again(ledger: Ledger) -> None:
    talk(ledger, "x", "secret")
    ledger.upkeep.erase_everything()
    talk(ledger, "y", "new")
    assert ledger.thread("y") == 2
    assert texts(ledger, "y") == ["new", "to new"]


def test_export_round_trips_after_rewinds_and_an_erase(ledger: Ledger) -> None:
    talk(ledger, "a", "one", "two", "three")
    ledger.rewind("a", turn=2)
    ledger.rewind("a", turn=1)
    talk(ledger, "b", "kept")
    ledger.upkeep.erase("a")
    other = SqliteLedger()
    other.load(ledger.store.dump())
    assert list(other.dump()) == list(ledger.store.dump())
    assert texts(Ledger(other), "b") == ["kept", "to kept"]


def test_erase_leaves_threads_of_other_labels(ledger: Ledger) -> None:
    talk(ledger, "a", "old")
    ledger.sessions.rename("a", "x")
    ledger.sessions.unalias("a")
    talk(ledger, "a", "new")
    assert ledger.sessions.metadata("a") == SessionMetadata()
    assert ledger.upkeep.erase("a").messages == 2
    assert texts(ledger, "x") == ["old", "to old"]
    talk(ledger, "f", "base")
    ledger.fork("b", "f")
    ledger.sessions.rename("b", "c")
    ledger.sessions.unalias("b")
    talk(ledger, "b", "unrelated")
    ledger.upkeep.erase("f", with_forks=True)
    assert sorted(one.label for one in ledger.sessions.list()) == ["b", "x"]


def test_child_session_is_erased_with_its_parent(ledger: Ledger) -> None:
    talk(ledger, "parent", "one", "two")
    ledger.sessions.create("child", SessionMetadata(parent_session="parent", parent_turn=2))
    talk(ledger, "child", "work")
    ledger.rewind("parent", turn=1)
    ledger.sessions.archive("child")
    ledger.upkeep.erase("parent")
    with pytest.raises(NoSuchSession):
        ledger.sessions.rename("child", "orphan")
    talk(ledger, "parent", "another one of that name")
    assert ledger.sessions.spawned("parent") == []


def test_child_sessions_stay_when_a_name_is_redirected(ledger: Ledger) -> None:
    for name in ("guest", "account"):
        talk(ledger, name, "one", "two")
    ledger.sessions.create("child", SessionMetadata(parent_session="guest", parent_turn=2))
    ledger.sessions.merge("guest", "account")
    assert ledger.sessions.metadata("child") == SessionMetadata(parent_session="guest~merged", parent_turn=2)
    assert [one.label for one in ledger.sessions.spawned("guest~merged")] == ["child"]
    assert ledger.sessions.spawned("account") == []


def test_earlier_names_resolve_to_the_newest_label(ledger: Ledger) -> None:
    talk(ledger, "n0", "one")
    for number in range(40):
        ledger.sessions.rename(f"n{number}", f"n{number + 1}")
    assert ledger.resolve("n0") == "n40"
    ledger.sessions.rename("n40", "n0")
    assert (ledger.resolve("n40"), ledger.resolve("n7")) == ("n0", "n0")


def test_closing_a_turn_can_be_retried_by_its_key(ledger: Ledger) -> None:
    ledger.open_turn("main", said("go"))
    assert [ledger.close_turn("main", key="end").added for _ in range(2)] == [1, 0]


def test_an_undo_behind_a_clear_is_refused(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    ledger.compact("main", Compaction(1, 2, 3, "so far"), after_checkpoint=0)
    ledger.commit("main", Commit((NewEntry("clear"),)))
    with pytest.raises(BadReference, match="no compaction", check=has_code("bad_entry")):
        ledger.undo("main")


@pytest.mark.parametrize(
    "entry",
    [
        NewEntry("bogus"),  # pyright: ignore[reportArgumentType]
        NewEntry(messages=said(Message("wizard", ()))),  # pyright: ignore[reportArgumentType]
        NewEntry(messages=said(Message("user", (Image("image/png", sha256="0" * 64),)))),
    ],
    ids=["kind", "role", "image without data"],
)
def test_unreadable_values_are_rejected_on_append(ledger: Ledger, entry: NewEntry) -> None:
    with pytest.raises(BadReference, match="nothing was stored", check=has_code("bad_entry")):
        ledger.commit("main", Commit((entry,)))
    with pytest.raises(BadReference, match="metadata is invalid"):
        ledger.sessions.create("main", SessionMetadata(status="open"))  # pyright: ignore[reportArgumentType]
    assert ledger.sessions.list(every=True) == []


def test_turns_are_read_when_usage_has_another_shape(ledger: Ledger) -> None:
    ledger.open_turn("main", said("go"), usage={"input_tokens": "many"}, tools=5, permissions="all")
    (turn,) = ledger.turns("main")
    assert (turn.input_tokens, turn.tools_available, turn.permissions_granted) == (0, (), ())


def test_surrogate_halves_are_read_and_found_as_one_character(ledger: Ledger) -> None:
    ledger.append("main", said("\ud840\udc00 word", "\ud83d\ude00"))
    assert texts(ledger, "main") == ["\U00020000 word", "😀"]
    assert [hit.ref for hit in ledger.search("\U00020000")] == [MessageRef(1, 0)]


def test_ledger_is_sound_after_a_parent_is_erased(tmp_path: Path) -> None:
    ledger = Ledger(SqliteLedger(str(tmp_path / "l.db")))
    talk(ledger, "parent", "one", "two")
    ledger.sessions.create("child", SessionMetadata(parent_session="parent", parent_turn=2))
    talk(ledger, "child", "\ud83d\ude00 work")
    ledger.upkeep.erase("parent")
    assert care.verify(tmp_path / "l.db") == []
    talk(ledger, "parent", "another one of that name")
    assert care.verify(tmp_path / "l.db") == []
    care.backup(tmp_path / "l.db", tmp_path / "copy.db")


def test_turn_ends_before_a_following_clear_or_compaction(ledger: Ledger) -> None:
    talk(ledger, "main", "one", "two")
    ledger.commit("main", Commit((NewEntry("clear"),)))
    talk(ledger, "main", "three")
    ledger.compact("main", Compaction(6, 7, 8, "so far"), after_checkpoint=5)
    for turn, end in ((0, 0), (1, 2), (2, 4), (3, 7)):
        ledger.fork(f"at {turn}", "main", turn=turn)
        assert ledger.store.head(ledger.thread(f"at {turn}"))[0] == end
    assert len(ledger.visible("at 2").rows) == 4


def test_part_of_the_messages_is_the_same_part_of_all_of_them(tmp_path: Path) -> None:
    ledger = Ledger(SqliteLedger(str(tmp_path / "l.db")))
    for number in range(5):
        sized = with_sizes([user(f"{number}.{place}") for place in range(number)], COUNTER)
        ledger.append("main", sized, starts_turn=True)
    ledger.fork("branch", "main", seq=4)
    ledger.append("branch", with_sizes([user("on"), assistant("so")], COUNTER))
    ledger.fork("leaf", "branch", seq=4)
    for session in ("main", "branch", "leaf"):
        every = [row.message for entry in ledger.entries(session) for row in entry.rows]
        for offset in range(-len(every) - 2, len(every) + 2):
            for limit in (1, 2, 3, 100):
                first = max(len(every) + offset, 0) if offset < 0 else min(offset, len(every))
                wanted = (every[first : first + limit], first, len(every))
                assert messages_from(ledger.store, session, offset, limit) == wanted


def test_the_list_of_sessions_is_the_same_when_its_caches_are_full(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdef":
        talk(ledger, name, "one")
    ledger.fork("fork", "b")
    ledger.sessions.delete("c")
    listed = ledger.sessions.list(every=True)
    monkeypatch.setattr(read_sessions, "MOST_CACHED", 2)
    assert ledger.sessions.list(every=True) == listed
    pages = [ledger.sessions.list(every=True, limit=2, offset=offset) for offset in range(0, len(listed), 2)]
    assert [info for page in pages for info in page] == listed
