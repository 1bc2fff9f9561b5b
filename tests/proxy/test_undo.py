"""A recorded call by its id: its explanation with the whole texts, its replay, and the undo of its cut."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.engine.analysis.replay import cut_of_call
from nexus.errors import BadReference
from nexus.ledger.cut_undo import undo_cut
from nexus.ledger.sqlite import SqliteLedger
from nexus.proxy.pages import recorded_call_of
from nexus.proxy.reports import stored_report
from nexus.testing.model_server import ModelServer, model_server, reply
from nexus.types.ledger_entries import Commit, Cut, MessageRef, NewEntry, SizedMessage
from nexus.types.message import TokenSize, user
from proxy.running import RunningProxy, running_proxy
from proxy.test_commands import nexus as command
from proxy.test_commands import proxy_process
from proxy.test_fit import LONG, long_texts
from proxy.test_formats import FORMATS, ask, request_of

ENOUGH = 13_000
"""Tokens that twenty long turns fit into, in the same class of sizes as `SMALL`."""
SMALL = 9_000


def undo(ledger: Path, call_id: str) -> list[str]:
    """Undo a call's cut as another process does: with an engine of its own on the same ledger."""
    with nexus.open(ledger=ledger) as nx:
        report = stored_report(nx.ledger.store, call_id)
        assert report is not None
        cut = cut_of_call(nx.calls.dependencies, recorded_call_of(nx, report))
        assert cut is not None
        return undo_cut(nx.ledger.store, report.thread, cut)


def said(provider: ModelServer, text: str) -> bool:
    return text in provider.requests[-1].data.decode()


def grow(texts: list[str], number: int) -> list[str]:
    return [*texts, "ok", f"Further question {number}."]


def fitted(running: RunningProxy, path: str, body: dict[str, Any]) -> str:
    answer = ask(running, path, body)
    assert answer.headers["x-nexus-outcome"] == "fitted", answer.text
    return answer.headers["x-nexus-call"]


@pytest.mark.parametrize("format_", FORMATS)
def test_undone_cut_shows_its_messages_again_once_the_budget_is_larger(format_: str, tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = long_texts(12)
    with model_server(reply("ok")) as provider:
        with running_proxy(provider, ledger, mode="fit", budget=SMALL) as running:
            call_id = fitted(running, *request_of(format_, texts))
            assert not said(provider, "Answer 9:")
        with running_proxy(provider, ledger, mode="fit", budget=ENOUGH) as running:
            texts = grow(texts, 1)
            fitted(running, *request_of(format_, texts))  # the cut holds, so that the prefix does
            assert not said(provider, "Answer 9:")
            (session,) = undo(ledger, call_id)
            texts = grow(texts, 2)
            path, body = request_of(format_, texts)
            answer = ask(running, path, body)
            call = running.call(answer.headers["x-nexus-call"])
            assert answer.headers["x-nexus-outcome"] in ("as_received", "marked")
            assert said(provider, "Answer 9:")
            assert (call["session"], call["action"]) == (session, "append")
            with pytest.raises(BadReference, match="undone already"):
                undo(ledger, call_id)
    checked = command(tmp_path, "ledger", "verify", "--ledger", str(ledger))
    assert checked.returncode == 0, checked.stdout


def test_undone_cut_is_made_anew_within_the_same_budget(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = long_texts(20)
    with (
        model_server(reply("ok")) as provider,
        running_proxy(provider, ledger, mode="fit", budget=6_000) as running,
    ):
        call_id = fitted(running, *request_of("anthropic", texts))
        undo(ledger, call_id)
        texts = grow(texts, 1)
        next_id = fitted(running, *request_of("anthropic", texts))
        call = running.call(next_id)
        assert call["tokens"] <= 6_000
        assert any("over the budget" in reason for reason in call["reasons"])
        assert undo(ledger, next_id) == [call["session"]]


def test_cut_stays_undone_when_the_client_asks_again(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = long_texts(12)
    with model_server(*(reply(f"Answer {n}.") for n in range(9))) as provider:
        with running_proxy(provider, ledger, mode="fit", budget=SMALL) as running:
            call_id = fitted(running, *request_of("anthropic", texts))
        with running_proxy(provider, ledger, mode="fit", budget=ENOUGH) as running:
            undo(ledger, call_id)
            again = [texts, [*texts[:-1], "Another last question."]]
            for asked in again:
                path, body = request_of("anthropic", asked)
                call = running.call(ask(running, path, body).headers["x-nexus-call"])
                assert call["action"] in ("fork", "repeat")
                assert (call["outcome"], said(provider, "Answer 9:")) == ("marked", True)
                path, body = request_of("anthropic", [*asked, f"Answer {len(provider.requests) - 1}.", "Next."])
                call = running.call(ask(running, path, body).headers["x-nexus-call"])
                assert (call["action"], said(provider, "Answer 9:")) == ("append", True)
                assert call["explanation"]["lines"]


def test_undo_includes_forks_of_the_conversation(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    texts = long_texts(12)
    with model_server(*(reply(f"Answer {n}.") for n in range(9))) as provider:
        with running_proxy(provider, ledger, mode="fit", budget=SMALL) as running:
            call_id = fitted(running, *request_of("anthropic", texts))
            fork = [*texts, "Answer 0.", "One way."]
            other = [*texts, "Answer 0.", "Another way."]
            for asked in (fork, other):
                fitted(running, *request_of("anthropic", asked))
        with running_proxy(provider, ledger, mode="fit", budget=ENOUGH) as running:
            assert len(undo(ledger, call_id)) == 2
            for asked, number in ((fork, 1), (other, 2)):
                path, body = request_of("anthropic", [*asked, f"Answer {number}.", "Go on."])
                answer = ask(running, path, body)
                assert running.call(answer.headers["x-nexus-call"])["action"] == "append"
                assert said(provider, "Answer 9:")


def test_call_is_explained_replayed_and_undone_by_its_id(tmp_path: Path) -> None:
    texts = long_texts(20)
    with (
        model_server(reply("ok")) as provider,
        proxy_process(tmp_path, provider, "--budget", "6000") as started,
    ):
        path, body = request_of("anthropic", texts)
        answer = httpx.post(started["url"] + path, json=body, trust_env=False, timeout=60)
        call_id = answer.headers["x-nexus-call"]
        sent = provider.bodies[-1]
        shown = command(tmp_path, "explain", "--call", call_id, "--full", "--json")
        explanation = json.loads(shown.stdout)
        undone = command(tmp_path, "proxy", "undo", call_id, "--json")
        page = httpx.get(f"{started['url']}/nexus/calls/{call_id}", headers={"accept": "text/plain"}, trust_env=False)
    omitted = [line for line in explanation["lines"] if line["state"] == "omitted"]
    assert len(omitted) > 15
    assert all(line["reason"] for line in omitted)
    assert {line["full_text"] for line in omitted} <= set(texts)
    table = command(tmp_path, "explain", "--call", call_id, "--full").stdout
    assert omitted[0]["full_text"].strip() in table
    replayed = command(tmp_path, "replay", "--call", call_id)
    assert "verified" in replayed.stderr
    last = json.loads(replayed.stdout)["messages"][-1]["content"]
    assert LONG.strip() in json.dumps(last)
    assert json.dumps(sent["messages"][-1]).count("Question 38") == 1
    assert json.loads(undone.stdout)["hidden"]["messages"] >= len(omitted)
    again = command(tmp_path, "proxy", "undo", call_id)
    assert (again.returncode, "undone already" in again.stderr) == (2, True)
    for name in ("explain", "replay"):
        assert f"nexus {name} --call {call_id}" in page.text
        missing = command(tmp_path, name, "--call", "0" * 27)
        assert missing.returncode == 2
        assert "x-nexus-call" in missing.stderr
        elsewhere = command(tmp_path, name, "--call", call_id, "--ledger", str(tmp_path / "none.db"))
        assert (elsewhere.returncode, "no ledger" in elsewhere.stderr) == (2, True)
        named = command(tmp_path, name, "--call", call_id, "--ledger", str(tmp_path / ".nexus" / "proxy.db"))
        assert named.returncode == 0
        assert "SESSION" in command(tmp_path, name).stderr
    assert f"nexus proxy undo {call_id}" in command(tmp_path, "proxy", "call", call_id).stdout


def test_of_two_undos_at_once_one_is_stored(tmp_path: Path) -> None:
    ledger = tmp_path / "l.db"
    with (
        model_server(reply("ok")) as provider,
        running_proxy(provider, ledger, mode="fit", budget=6_000) as running,
    ):
        call_id = fitted(running, *request_of("anthropic", long_texts(20)))

    def attempt(_: int) -> str:
        try:
            return undo(ledger, call_id)[0]
        except BadReference as error:
            return error.code

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(attempt, range(4)))
    assert outcomes[:3] == ["cut_undone"] * 3
    with nexus.open(ledger=ledger) as nx:
        assert [mark.kind for mark in nx.ledger.checkpoints(outcomes[3])] == ["undone"]


def test_undo_leaves_equal_cuts_of_other_conversations() -> None:
    """Two conversations of one shape may have equal cuts, each in a session of its own."""
    store = SqliteLedger()
    first = MessageRef(1, 0)
    cut = Cut("view", 1, 1, first, "", omitted_messages=0, omitted_tokens=0, strip_thinking_until_seq=1)
    messages = (SizedMessage(user("same"), TokenSize(1, 1, 1)),)
    for label in ("ann", "bob"):
        committed = store.commit(label, Commit((NewEntry(messages=messages),), cut=cut))
    assert undo_cut(store, committed.thread, cut) == ["bob"]
    kinds = {label: [entry.kind for entry in store.entries(store.thread_of(label) or 0)] for label in ("ann", "bob")}
    assert kinds == {"ann": ["messages"], "bob": ["messages", "undone"]}


def test_call_without_a_cut_cannot_be_undone(tmp_path: Path) -> None:
    with model_server(reply("ok")) as provider, proxy_process(tmp_path, provider) as started:
        path, body = request_of("anthropic", ["Hello."])
        call_id = httpx.post(started["url"] + path, json=body, trust_env=False).headers["x-nexus-call"]
    ended = command(tmp_path, "proxy", "undo", call_id)
    assert ended.returncode == 2
    assert "without a cut" in ended.stderr
