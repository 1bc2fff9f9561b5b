"""`retain`: conversations that nobody has gone on with for long are erased whole, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.errors import BadSetting, LedgerError
from nexus.ledger.documents import PROXY_CALL
from nexus.ledger.sessions import SessionMetadata
from nexus.proxy import retention
from nexus.proxy.retention import MARK, Retention, erase_older
from nexus.proxy.settings import read_settings
from nexus.testing.model_server import model_server, reply, respond
from proxy.running import RunningProxy, running_proxy
from proxy.test_faults import wait_until
from proxy.test_formats import ask, request_of

DAY_MS = 24 * 3_600_000
SECRET = "The treasure lies under the oldest oak of the garden."


class Clock:
    """A time of day that the test sets."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nx(tmp_path: Path, clock: Clock) -> Iterator[nexus.Engine]:
    with nexus.open(ledger=tmp_path / "l.db", clock_ms=clock) as engine:
        yield engine


def talk(running: RunningProxy, *texts: str) -> dict[str, Any]:
    """Return the report of a call with these texts, once it is recorded."""
    call_id = ask(running, *request_of("anthropic", [*texts])).headers["x-nexus-call"]
    wait_until(lambda: running.call(call_id)["session"] != "")
    return running.call(call_id)


def labels(nx: nexus.Engine) -> set[str]:
    return {session.label for session in nx.sessions(include_inactive=True)}


def reports(nx: nexus.Engine) -> set[str]:
    return {document.name for document in nx.ledger.store.documents(PROXY_CALL)}


def erase_all(nx: nexus.Engine, before_ms: int) -> tuple[int, int]:
    """Return how many conversations and reports went."""
    steps = list(erase_older(nx.ledger, before_ms))
    return sum(step.conversations for step in steps), sum(len(step.reports) for step in steps)


def test_old_conversations_go_with_forks_and_reports_and_all_others_stay(
    nx: nexus.Engine, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with model_server(reply("ok")) as provider:
        with running_proxy(provider, nx=nx) as running:
            old = talk(running, SECRET)
            fork = talk(running, SECRET, "ok", "One way.")
            other_fork = talk(running, SECRET, "ok", "Another way.")
        assert (old["session"], other_fork["action"]) == (fork["session"], "fork")
        ctx = nx.assemble("My own question.", session="mine")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("My own answer."),)))
        with model_server(respond(429, {"error": {"message": "slow"}})) as busy, running_proxy(busy, nx=nx) as running:
            refused = ask(running, *request_of("anthropic", ["Refused."])).headers["x-nexus-call"]
            wait_until(lambda: refused in reports(nx))
        clock.now_ms += 31 * DAY_MS
        with running_proxy(provider, nx=nx) as running:
            new = talk(running, "A new question.")
        with running_proxy(provider, nx=nx, retain="30d") as running:
            wait_until(lambda: nx.ledger.store.document(*MARK) is None and len(reports(nx)) == 1)
            gone = running.get(f"/nexus/calls/{old['id']}")
            assert talk(running, "A new question.", "ok", "Go on.")["session"] == new["session"]
    assert labels(nx) == {"mine", new["session"]}
    assert new["id"] in reports(nx)
    assert gone.status_code == 404
    (record,) = [record for record in caplog.records if record.getMessage() == "old conversations erased"]
    assert record.__dict__["fields"] == {"conversations": 1, "reports": 4}
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
    assert b"oldest oak" not in written
    assert b"My own question" in written


def test_conversation_with_a_new_call_in_a_fork_stays_whole(nx: nexus.Engine, clock: Clock) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        first = talk(running, SECRET)
        clock.now_ms += 31 * DAY_MS
        fork = talk(running, SECRET, "No.", "Another way.")
    assert fork["session"] != first["session"]
    assert erase_all(nx, clock.now_ms - 30 * DAY_MS) == (0, 0)
    assert len(labels(nx)) == len(reports(nx)) == 2


@pytest.mark.parametrize("belongs", ["fork", "child"])
def test_conversation_that_a_session_of_ones_own_needs_stays(nx: nexus.Engine, clock: Clock, belongs: str) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        needed = talk(running, SECRET)["session"]
        talk(running, "Another conversation.")
    if belongs == "fork":
        nx.ledger.fork("mine", needed)
    else:
        metadata = SessionMetadata(parent_session=needed, parent_turn=1)
        message = nexus.user("Mine.")
        nx.ledger.store.commit("mine", _commit(nx, message), metadata)
    assert erase_all(nx, clock.now_ms + DAY_MS) == (1, 1)
    assert labels(nx) == {needed, "mine"}


def _commit(nx: nexus.Engine, message: nexus.Message) -> Any:
    from nexus.assembly.record import with_sizes
    from nexus.types.ledger_entries import Commit, NewEntry

    return Commit((NewEntry(messages=with_sizes((message,), nx.counter), starts_turn=True),))


def test_renamed_conversation_goes_with_its_reports(nx: nexus.Engine, clock: Clock) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        nx.ledger.sessions.rename(talk(running, SECRET)["session"], "treasure")
    assert erase_all(nx, clock.now_ms + DAY_MS) == (1, 1)
    assert (labels(nx), reports(nx)) == (set(), set())


def test_conversation_that_is_used_while_others_go_stays(
    nx: nexus.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_MESSAGES", 1)
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        sessions = [talk(running, f"Question {number}.")["session"] for number in range(3)]
        clock.now_ms += 31 * DAY_MS
        steps = erase_older(nx.ledger, clock.now_ms - 30 * DAY_MS)
        while not next(steps).conversations:
            pass
        (used, _) = sorted(labels(nx))
        number = sessions.index(used)
        assert talk(running, f"Question {number}.", "ok", "Go on.")["session"] == used
        assert sum(step.conversations for step in steps) == 1
    assert labels(nx) == {used}
    assert len(reports(nx)) == 2
    with pytest.raises(LedgerError, match="in use again"):
        nx.ledger.upkeep.erase_unused([used], clock.now_ms - 1)


def test_two_proxies_erase_the_same_ledger(nx: nexus.Engine, clock: Clock, tmp_path: Path) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        for number in range(6):
            talk(running, f"Question {number}.")
    with nexus.open(ledger=tmp_path / "l.db", clock_ms=clock) as other:
        both = [erase_older(nx.ledger, clock.now_ms + DAY_MS), erase_older(other.ledger, clock.now_ms + DAY_MS)]
        erased = 0
        while both:
            for steps in [*both]:
                step = next(steps, None)
                if step is None:
                    both.remove(steps)
                else:
                    erased += step.conversations
    assert erased == 6
    assert (labels(nx), reports(nx), nx.ledger.store.document(*MARK)) == (set(), set(), None)


def test_erasure_that_was_killed_is_completed_by_the_next(
    nx: nexus.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_MESSAGES", 1)
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        for number in range(3):
            talk(running, f"Question {number}.")
    steps = erase_older(nx.ledger, clock.now_ms + DAY_MS)
    while not next(steps).conversations:
        pass
    del steps
    assert len(labels(nx)) == len(reports(nx)) == 2
    assert nx.ledger.store.document(*MARK) is not None
    assert erase_all(nx, clock.now_ms + DAY_MS) == (2, 2)
    assert nx.ledger.store.document(*MARK) is None


@pytest.mark.parametrize("outcome", ["as_received", "fitted"])
def test_call_whose_conversation_goes_meanwhile_is_recorded_anew_or_says_why_not(
    nx: nexus.Engine, clock: Clock, outcome: str
) -> None:
    settings: dict[str, Any] = {"mode": "fit", "budget": 2_000} if outcome == "fitted" else {}
    texts = [SECRET, "ok", "Tell me more. " * 2_000, "ok", "Go on."]
    with (
        model_server(reply("ok"), reply("word " * 20, event_interval_s=0.05)) as provider,
        running_proxy(provider, nx=nx, **settings) as running,
    ):
        talk(running, SECRET)
        path, body = request_of("anthropic", texts, stream=True)
        with httpx.stream("POST", running.url + path, json=body, trust_env=False, timeout=60) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            time.sleep(0.3)  # until its context is assembled
            assert erase_all(nx, clock.now_ms + DAY_MS) == (1, 1)
            for _ in pieces:
                pass
        call = running.call(answer.headers["x-nexus-call"])
    assert call["outcome"] == outcome
    if outcome == "fitted":
        assert call["session"] == ""
        assert "history_erased" in call["reasons"][-1]
    else:
        said = [message.text() for message in nx.history(call["session"])]
        assert said[:-1] == texts


def look(retain: Retention) -> int:
    return asyncio.run(retain.look(asyncio.Event()))


def test_clock_that_jumps_forward_erases_nothing_before_the_next_look(nx: nexus.Engine, clock: Clock) -> None:
    uptime = Clock()
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        session = talk(running, SECRET)["session"]
    retain = Retention(nx.ledger, 30 * DAY_MS, clock, lambda _: None, uptime)
    assert look(retain) == 0
    clock.now_ms += 31 * DAY_MS
    assert look(retain) == 0
    clock.now_ms -= 31 * DAY_MS
    uptime.now_ms += DAY_MS
    clock.now_ms += DAY_MS
    assert look(retain) == 0
    clock.now_ms += 31 * DAY_MS
    assert look(retain) == 0
    assert labels(nx) == {session}
    uptime.now_ms += 3_600_000
    clock.now_ms += 3_600_000
    assert look(retain) == 1


def test_start_at_which_everything_is_too_old_erases_nothing_before_the_next_look(
    nx: nexus.Engine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        talk(running, SECRET)
    clock.now_ms += 31 * DAY_MS
    retain = Retention(nx.ledger, 30 * DAY_MS, clock, lambda _: None, lambda: 0)
    assert look(retain) == 0
    assert "everything is older" in caplog.text
    assert look(retain) == 1


def test_calls_go_on_while_much_is_erased(nx: nexus.Engine, clock: Clock) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        for number in range(40):
            talk(running, f"Question {number}.")
        clock.now_ms += 31 * DAY_MS
        new = talk(running, "A new question.")
        erased: list[tuple[int, int]] = []
        thread = threading.Thread(target=lambda: erased.append(erase_all(nx, clock.now_ms - 30 * DAY_MS)))
        thread.start()
        texts = ["A new question."]
        for number in range(20):
            texts += ["ok", f"Go on {number}."]
            assert talk(running, *texts)["session"] == new["session"]
        thread.join(60)
    assert erased == [(40, 40)]
    assert labels(nx) == {new["session"]}


def test_erasing_by_hand_takes_the_reports_of_its_calls_and_no_others(nx: nexus.Engine) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx) as running:
        first, second = (talk(running, text) for text in ("One.", "Two."))
    nx.ledger.upkeep.erase(first["session"])
    assert reports(nx) == {second["id"]}
    nx.ledger.upkeep.erase(second["session"])
    assert reports(nx) == set()


def test_erasing_a_user_takes_the_reports_of_all_calls(nx: nexus.Engine) -> None:
    with model_server(reply("ok")) as provider, running_proxy(provider, nx=nx, user_header="x-user") as running:
        path, body = request_of("anthropic", ["Hello."])
        for user in ("anna", "bert"):
            httpx.post(running.url + path, json=body, headers={"x-user": user}, trust_env=False)
        broken = httpx.post(running.url + path, json={}, headers={"x-user": "anna"}, trust_env=False)
        wait_until(lambda: broken.headers["x-nexus-call"] in reports(nx))
    assert len(reports(nx)) == 3
    nx.ledger.upkeep.erase_principal("anna")
    users = [document.body["user"] for document in nx.ledger.store.documents(PROXY_CALL)]
    assert users == ["bert"]
    assert len(labels(nx)) == 1


@pytest.mark.parametrize("wrong", ["30", "d", "0d", "1m", "-1d", "1.5d", "٣d"])
def test_wrong_time_is_one_clear_line(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="no time"):
        read_settings(None, {"retain": wrong})
    file = tmp_path / "p.toml"
    file.write_text(f"retain = {json.dumps(wrong)}")
    with pytest.raises(BadSetting, match=r"p\.toml.*no time"):
        read_settings(file, {})


@pytest.mark.parametrize(("text", "hours"), [("1h", 1), ("30d", 720), ("2w", 336), ("", 0)])
def test_times_are_hours_days_or_weeks(text: str, hours: int) -> None:
    assert read_settings(None, {"retain": text}).retain_ms == hours * 3_600_000
