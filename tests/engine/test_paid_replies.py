"""A reply that was paid for is never lost, and never paid twice, when the ledger fails as it is recorded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nexus
from nexus import AgentResult, Event, Text, assistant
from nexus.agents import Agent
from nexus.engine import Engine
from nexus.errors import (
    BadReply,
    LateReply,
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerUnavailable,
    LedgerUnusable,
)
from nexus.ledger import unrecorded_replies as unrecorded
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.unrecorded_replies import RESERVED_BYTES, UnrecordedReplies, UnrecordedReply
from nexus.models import Models, open_client
from nexus.testing.model_server import model_server, reply
from nexus.types.ledger_entries import Commit
from support.paid_replies import CAUSES, PAID, refusing

EVENT = Event((Text("A question?"),), id="e1")


def paid(_ctx: object = None) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": PAID}, "finish_reason": "stop"}]}


@contextmanager
def full(nx: Engine) -> Iterator[None]:
    """Let the ledger's file take no further page while the block runs."""
    store = nx.ledger.store
    assert isinstance(store, SqliteLedger)

    def limit(pages: int) -> None:
        store._pool.write(lambda db: db.run(f"PRAGMA max_page_count={pages}"), alone=True)

    pages = store._pool.write(lambda db: int(db.value("PRAGMA page_count")), alone=True)
    limit(pages)
    try:
        yield
    finally:
        limit(1_000_000)


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[Engine]:
    with nexus.open(model="gpt-4o", ledger=tmp_path / "ledger.db", home=tmp_path) as opened:
        yield opened


def texts(nx: Engine, session: str = "s") -> list[str]:
    return [message.text()[:14] for message in nx.history(session)]


def test_full_disk_keeps_the_reply_in_a_file_and_the_same_event_answers_from_it(nx: Engine, tmp_path: Path) -> None:
    calls: list[object] = []

    def send(ctx: object) -> object:
        calls.append(ctx)
        with_limit.__enter__()
        return paid()

    nexus.call(nx, "An earlier question?", lambda _: AgentResult((assistant("Yes."),)), session="s")
    with_limit = full(nx)
    with pytest.raises(LedgerFull) as failed:
        nexus.call(nx, EVENT, send, session="s")
    assert failed.value.reply == paid()
    file = tmp_path / "ledger.db.unrecorded"
    assert failed.value.kept_in == str(file)
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (RESERVED_BYTES, 0o600)
    with_limit.__exit__(None, None, None)
    result = nexus.call(nx, EVENT, send, session="s")
    assert result.result.messages[-1].text() == PAID
    assert len(calls) == 1
    assert texts(nx)[-2:] == ["A question?", "A paid reply. "]
    assert nx.unrecorded.count() == 0
    assert PAID[:14].encode() not in file.read_bytes()
    assert nx.replay("s", 2).current_message.text().endswith("A question?")


def test_text_of_the_error_says_where_the_reply_is(nx: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = nx.begin(EVENT, session="s")
    turn.assemble()
    with refusing(nx, LedgerBusy, monkeypatch), pytest.raises(LedgerBusy) as failed:
        turn.record(paid())
    assert str(failed.value) == (
        f"refused; reply saved in '{tmp_path / 'ledger.db.unrecorded'}' (the next program that opens the ledger records it, "
        "and the same event is then answered from it)"
    )
    nx.unrecorded.path = None
    with refusing(nx, LedgerBusy, monkeypatch), pytest.raises(LedgerBusy) as failed:
        turn.record(paid())
    assert str(failed.value) == "refused; reply saved in no file (record it again: `error.reply` has it)"


def test_recorded_reply_waits_no_longer_and_is_not_recorded_twice(nx: Engine) -> None:
    turn = nx.begin(EVENT, session="s")
    turn.assemble()
    with full(nx), pytest.raises(LedgerFull) as failed:
        turn.record(paid())
    assert nx.unrecorded.count() == 1
    turn.record(failed.value.reply)
    assert nx.unrecorded.count() == 0
    with pytest.raises(BadReply, match="reply is already recorded in turn 1 of session 's'"):
        turn.record(failed.value.reply)
    assert texts(nx) == ["A question?", "A paid reply. "]
    assert not nx.ledger.upkeep.late_replies("s")


def test_next_program_that_opens_the_ledger_records_the_reply(nx: Engine, tmp_path: Path) -> None:
    turn = nx.begin(EVENT, session="s")
    turn.assemble()
    with full(nx), pytest.raises(LedgerFull):
        turn.record(paid())
    program = (
        "import nexus, sys\n"
        "with nexus.open(ledger=sys.argv[1], home=sys.argv[2]) as nx:\n"
        "    print([m.text()[:14] for m in nx.history('s')], nx.ledger.turns('s')[0].status)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "ledger.db"), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['A question?', 'A paid reply. '] completed"


def test_reply_that_waited_until_a_later_turn_began_is_late_and_not_under_it(nx: Engine) -> None:
    turn = nx.begin(EVENT, session="s")
    turn.assemble()
    with full(nx), pytest.raises(LedgerFull):
        turn.record(paid())
    other = nexus.open(ledger=nx.ledger.store, home=nx.credentials.home)
    other.unrecorded.path = None  # a program on another machine, which does not see the file
    other.begin("Another question?", session="s")
    assert nx.recorder.record_waiting() == 1
    assert texts(nx) == ["A question?", "Another questi"[:14]]
    (late,) = nx.ledger.upkeep.late_replies("s")
    assert texts(nx, late.label) == ["A question?", "A paid reply. "]


def closed_ledger(text: str) -> LedgerUnusable:
    return LedgerUnusable(text, code="ledger_closed")


def test_every_error_of_the_storage_keeps_the_reply(nx: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, error in enumerate((LedgerError, closed_ledger, LedgerDamaged), 1):
        event = Event((Text("A question?"),), id=f"e{number}")
        with refusing(nx, error, monkeypatch), pytest.raises(LedgerError) as failed:
            nexus.call(nx, event, paid, session=f"s{number}")
        assert failed.value.reply == paid()
        assert failed.value.kept_in
        assert nexus.call(nx, event, pytest.fail, session=f"s{number}").result.messages[-1].text() == PAID


def test_ledger_that_fails_before_the_commit_keeps_the_reply(nx: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = nx.begin(EVENT, session="s")
    turn.assemble()

    def fail(*_: object) -> None:
        raise LedgerError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(nx.ledger.store, "session", fail)
        patch.setattr(nx.ledger.store, "commit", fail)
        with pytest.raises(LedgerError, match="I/O") as failed:
            turn.record(paid())
    assert failed.value.reply == paid()
    assert nx.recorder.record_waiting() == 1
    assert texts(nx)[-1] == PAID[:14]


def test_calibration_that_fails_does_not_fail_a_stored_reply(nx: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LedgerError("disk I/O error")

    monkeypatch.setattr(nx.ledger.store, "calibrate", fail)
    usage = {"prompt_tokens": 5_000, "completion_tokens": 5, "total_tokens": 5_005}
    nexus.call(nx, EVENT, lambda _: {**paid(), "usage": usage}, session="s")
    assert texts(nx)[-1] == PAID[:14]


def test_reply_is_never_recorded_in_a_ledger_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    """Both ledgers have a turn 1 in thread 1: numbers alone would put the reply under another question."""
    file = tmp_path / "ledger.db"
    with nexus.open(model="gpt-4o", ledger=file, home=tmp_path) as nx:
        turn = nx.begin(EVENT, session="s")
        turn.assemble()
        with full(nx), pytest.raises(LedgerFull):
            turn.record(paid())
    original = file.rename(tmp_path / "other.db")
    with nexus.open(model="gpt-4o", ledger=file, home=tmp_path) as nx:
        nx.begin("How much is it?", session="s").assemble()
        assert nx.recorder.record_waiting() == 0
        assert texts(nx) == ["How much is it"]
        assert not list(nx.ledger.upkeep.late_replies("s"))
    original.replace(file)
    with nexus.open(ledger=file, home=tmp_path) as nx:
        assert texts(nx) == ["A question?", PAID[:14]]


@pytest.mark.parametrize("error", [LedgerBusy, LedgerUnavailable])
def test_busy_and_unreachable_ledgers_are_tried_again(
    nx: Engine, error: type[LedgerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, left = nx.ledger.store.commit, [2]

    def refuse_twice(session: str, new: Commit, *more: Any) -> Any:
        if new.assembly is not None and left[0]:
            left[0] -= 1
            raise error("refused")
        return commit(session, new, *more)

    monkeypatch.setattr(nx.ledger.store, "commit", refuse_twice)
    assert nexus.call(nx, EVENT, paid, session="s").result.messages[-1].text() == PAID
    assert left == [0]


Way = Callable[[Engine, list[int]], None]


def by_call(nx: Engine, calls: list[int]) -> None:
    def send(_ctx: object) -> object:
        calls.append(1)
        return paid()

    nexus.call(nx, EVENT, send, session="s")


def by_acall(nx: Engine, calls: list[int]) -> None:
    async def send(_ctx: object) -> object:
        calls.append(1)
        return paid()

    asyncio.run(nexus.acall(nexus.AsyncEngine(nx), EVENT, send, session="s"))


def by_agent(nx: Engine, calls: list[int]) -> None:
    async def run() -> None:
        with model_server(reply(PAID)) as server:
            async with Models({"gpt-4o": open_client(base_url=server.openai_url)}) as models:
                try:
                    await Agent(nexus.AsyncEngine(nx), models, builtin=False).run(EVENT, session="s")
                finally:
                    calls.extend([1] * len(server.requests))

    asyncio.run(run())


def by_turn(nx: Engine, calls: list[int]) -> None:
    turn = nx.begin(EVENT, session="s")
    if turn.status != "completed":
        turn.assemble()
        calls.append(1)
        turn.record(paid())


@pytest.mark.parametrize("way", [by_call, by_acall, by_agent, by_turn])
@pytest.mark.parametrize("error", CAUSES)
@pytest.mark.parametrize("has_file", [True, False])
def test_no_way_in_loses_a_reply_or_pays_twice(
    nx: Engine, way: Way, error: type[LedgerError], has_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    if not has_file:
        nx.unrecorded.path = None
    with refusing(nx, error, monkeypatch):
        for _ in range(2):
            with pytest.raises(error) as failed:
                way(nx, calls)
            assert failed.value.reply is not None
            assert bool(failed.value.kept_in) == has_file
    way(nx, calls)
    assert calls == [1]
    assert texts(nx) == ["A question?", "A paid reply. "]


def test_reply_that_only_the_error_has_is_recorded_without_another_call(
    nx: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = nx.begin(EVENT, session="s")
    ctx = turn.assemble()
    monkeypatch.setattr(UnrecordedReplies, "add", lambda *_: "")
    with refusing(nx, LedgerFull, monkeypatch), pytest.raises(LedgerFull) as failed:
        turn.record(paid())
    turn.record(failed.value.reply, ctx)
    assert texts(nx) == ["A question?", "A paid reply. "]


def test_text_of_a_broken_stream_stays_with_its_turn(nx: Engine) -> None:
    class Broken(Exception):
        partial = "Half of a rep"

    def send(_ctx: object) -> object:
        raise Broken

    with pytest.raises(Broken):
        nexus.call(nx, EVENT, send, session="s")
    assert texts(nx) == ["A question?", "Half of a rep"]


def test_text_of_a_stream_that_was_canceled_stays_with_its_turn(nx: Engine) -> None:
    async def run() -> None:
        with model_server(reply("one two three four five six", event_interval_s=0.6)) as server:
            client = open_client("gpt-4o", base_url=server.openai_url, api_key="x")
            send = client.complete
            task = asyncio.ensure_future(nexus.acall(nexus.AsyncEngine(nx), EVENT, send, session="s"))
            await asyncio.sleep(2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.aclose()

    asyncio.run(run())
    assert texts(nx)[0] == "A question?"
    assert "one two three four five six".startswith(texts(nx)[1].strip())


def test_torn_and_foreign_records_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "l.db.unrecorded"
    replies = UnrecordedReplies(file, "local")
    replies.reserve()
    with nexus.open(ledger=tmp_path / "l.db", home=tmp_path) as nx:
        turn = nx.begin(EVENT, session="s")
        turn.assemble()
        with full(nx), pytest.raises(LedgerFull):
            turn.record(paid())
        data = bytearray(file.read_bytes())
        assert UnrecordedReplies(file, "local").count() == 1
        assert UnrecordedReplies(file, "other").pending() == []
        data[200] ^= 1
        file.write_bytes(data)
        assert UnrecordedReplies(file, "local").pending() == []


class Killed(Exception):
    """The program ends in the middle of a write."""


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_kill_during_a_write_loses_another_reply(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of every write to the file only a part may arrive. Replies that were kept and not removed are still there."""
    path = tmp_path_factory.mktemp("kill") / "l.db.unrecorded"
    write, survivors, names = unrecorded._write, set[str](), iter(range(1_000))
    UnrecordedReplies(path, "local").reserve()
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        replies, left = UnrecordedReplies(path, "local"), [data.draw(st.integers(0, 4_000), "bytes until the kill")]

        def write_until_killed(file: FileIO, at: int, content: bytes, left: list[int] = left) -> None:
            write(file, at, content[: left[0]])
            left[0] -= len(content)
            if left[0] < 0:
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unrecorded, "_write", write_until_killed)
            name = f"session {next(names)}"
            gone = set(
                data.draw(st.lists(st.sampled_from(sorted(survivors)), unique=True) if survivors else st.just([]))
            )
            is_added = data.draw(st.booleans(), "added")
            try:
                if is_added:
                    size = data.draw(st.integers(1, 900), "size")
                    replies.add(UnrecordedReply("local", name, 1, None, Commit(), principal="p" * size))
                    survivors.add(name)
                else:
                    replies.erase(sessions=gone)
                    survivors -= gone
            except Killed:
                survivors -= gone if not is_added else set()
        found = {reply.session for reply in UnrecordedReplies(path, "local").pending()}
        assert survivors <= found
        survivors = found


def test_ledger_that_stores_nothing_is_asked_once_for_all_waiting_replies(tmp_path: Path) -> None:
    replies, asked = UnrecordedReplies(tmp_path / "l.db.unrecorded", "local"), list[str]()
    replies.reserve()
    for name in "abc":
        replies.add(UnrecordedReply("local", name, 1, None, Commit()))

    def refuse(reply: UnrecordedReply) -> None:
        asked.append(reply.session)
        raise LedgerUnavailable("gone")

    assert (replies.record_all(refuse), asked) == (0, ["a"])
    assert (replies.record_all(lambda _: None), replies.count()) == (3, 0)


def test_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "l.db.unrecorded"
    path.write_bytes(b"Somebody's notes")
    replies = UnrecordedReplies(path, "local")
    replies.reserve()
    assert replies.add(UnrecordedReply("local", "s", 1, None, Commit())) == ""
    assert path.read_bytes().rstrip(b"\0") == b"Somebody's notes"


def test_verify_counts_the_waiting_replies_of_all_tenants_of_a_server(tmp_path: Path) -> None:
    for tenant in ("local", "acme"):
        path = unrecorded.unrecorded_path("postgresql://h/db", is_file=False, tenant=tenant, home=tmp_path)
        replies = UnrecordedReplies(path, tenant)
        replies.reserve()
        replies.add(UnrecordedReply(tenant, "s", 1, None, Commit()))
    assert unrecorded.count_unrecorded("postgresql://h/db", is_file=False, home=tmp_path) == 2
    assert unrecorded.count_unrecorded("postgresql://h/other", is_file=False, home=tmp_path) == 0


def test_erase_forgets_waiting_replies(nx: Engine, tmp_path: Path) -> None:
    turn = nx.begin(EVENT, session="s", principal="ann")
    turn.assemble()
    with full(nx), pytest.raises(LedgerFull):
        turn.record(paid())
    assert PAID.encode()[:14] in (tmp_path / "ledger.db.unrecorded").read_bytes()
    assert nx.ledger.upkeep.erase_principal("ann").replies == 1
    assert PAID.encode()[:14] not in (tmp_path / "ledger.db.unrecorded").read_bytes()
    assert nx.recorder.record_waiting() == 0
    assert nx.sessions(include_inactive=True) == []


def test_reply_larger_than_the_reserved_room_stays_in_memory(nx: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "RESERVED_BYTES", 500)
    turn = nx.begin(EVENT, session="s")
    turn.assemble()
    with full(nx), pytest.raises(LedgerFull) as failed:
        turn.record(paid())
    assert failed.value.kept_in == ""
    assert nx.recorder.record_waiting() == 1
    assert texts(nx) == ["A question?", "A paid reply. "]


def test_late_reply_is_no_error_that_leaves_its_turn_open() -> None:
    assert LedgerUnavailable("gone").leaves_turn_open
    assert not LedgerFull("full").leaves_turn_open
    assert not LateReply.leaves_turn_open.fget(None)  # pyright: ignore[reportOptionalCall]
