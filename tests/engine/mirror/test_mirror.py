"""Lists of programs that keep their own: where each belongs, what is stored of it, and what the model is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import nexus
from engine.mirror.clients import FORMATS, Client, stored_messages
from nexus.engine.mirror import lists
from nexus.engine.mirror.keys import LONG_CHARS, ListScope
from nexus.errors import BadEvent, BadSetting
from nexus.testing import FixedClock
from support.continued import without_breakpoints
from support.validity import CHECKS


@pytest.fixture
def nx() -> Iterator[nexus.Engine]:
    with nexus.open(ledger=":memory:", model="gpt-4o") as engine:
        yield engine


def talk(nx: nexus.Engine, turns: int, **fields: Any) -> Client:
    client = Client(nx, **fields)
    for number in range(turns):
        client.turn(f"question {number}", f"answer {number}")
    return client


def texts_of(item: Any) -> str:
    """An item's JSON without what a response's items have and a request need not repeat, and with one text as text."""
    item = {key: value for key, value in item.items() if key not in ("id", "status") and value != "message"}
    content = item.get("content")
    if isinstance(content, list) and len(content) == 1 and "text" in content[0]["type"]:
        item = {**item, "content": content[0]["text"]}
    return json.dumps(item, sort_keys=True)


def place(ctx: nexus.AssembledContext) -> tuple[str, int, int]:
    assert ctx.mirrored is not None
    return ctx.mirrored.action, ctx.mirrored.stored_count, ctx.mirrored.missing_count


def test_assembling_a_list_writes_nothing(nx: nexus.Engine) -> None:
    client = talk(nx, 2)
    before = list(nx.ledger.store.dump())
    client.say("more")
    client.context().to_openai()
    Client(nx, items=[{"role": "user", "content": "another"}]).context()
    assert list(nx.ledger.store.dump()) == before


@pytest.mark.parametrize("name", FORMATS)
def test_growing_list_stays_in_one_session_and_is_sent_as_it_is(nx: nexus.Engine, name: str) -> None:
    client, wire = Client(nx, name, budget=None), FORMATS[name]
    for number in range(6):
        client.say(f"question {number}")
        ctx = client.context()
        body = wire.body(ctx)
        sent = without_breakpoints(body[wire.sent]) if name == "anthropic" else body[wire.sent]
        assert [texts_of(item) for item in sent] == [texts_of(item) for item in client.items]
        assert CHECKS[name](body) == []
        action, _, missing = place(ctx)
        assert (action, missing) == ("append" if number else "new", 1)
        client.answer(ctx, f"answer {number}", [("look", {"n": number, "x": 1.0})] if number % 2 else [])
    assert len(nx.sessions()) == 1
    assert stored_messages(nx) == 12


def test_missing_past_event_and_reply_are_one_transaction(nx: nexus.Engine) -> None:
    items = [{"role": r, "content": f"{r} {n}"} for n in range(3) for r in ("user", "assistant")]
    client = Client(nx, items=[*items, {"role": "user", "content": "and now"}])
    ctx = client.context()
    assert place(ctx) == ("new", 0, 7)
    committed = client.answer(ctx, "fine")
    session = nx.sessions()[0].label
    assert [message.text() for message in nx.history(session)] == [
        *(item["content"] for item in items), "and now", "fine",
    ]  # fmt: skip
    assert [turn.status for turn in nx.ledger.turns(session)] == ["completed"] * 4
    assert committed.turn == 4
    replayed = nx.replay(session, 4)
    assert replayed.to_openai() == ctx.to_openai()
    assert nx.record(ctx, client.wire.reply("fine", (), "x")).added == 0


def test_edited_earlier_message_forks_and_the_old_branch_goes_on(nx: nexus.Engine) -> None:
    client = talk(nx, 3)
    edited = Client(nx, items=[*client.items[:2], {"role": "user", "content": "instead"}])
    assert place(edited.context()) == ("fork", 2, 1)
    edited.answer(edited.context(), "as you like")
    client.say("go on")
    assert place(client.context()) == ("append", 6, 1)
    assert stored_messages(nx) == 8
    assert {session.messages for session in nx.sessions()} == {4, 6}


def test_same_retry_with_the_same_answer_adds_nothing(nx: nexus.Engine) -> None:
    client = talk(nx, 2)
    answer = client.items.pop()["content"]
    ctx = client.context()
    assert place(ctx) == ("repeat", 3, 0)
    assert client.answer(ctx, answer).added == 0
    assert ctx.mirrored is not None
    assert [session.label for session in nx.sessions()] == [ctx.mirrored.session]
    assert stored_messages(nx) == 4


def test_retry_with_another_answer_stores_only_the_answer(nx: nexus.Engine) -> None:
    client = talk(nx, 2)
    client.items.pop()
    ctx = client.context()
    client.answer(ctx, "another answer")
    assert ctx.mirrored is not None
    assert {session.label for session in nx.sessions()} == {ctx.mirrored.session, ctx.session_label}
    assert stored_messages(nx) == 5
    client.say("go on")
    assert place(client.context()) == ("append", 4, 1)


def test_list_that_ends_before_an_unanswered_message_is_a_fork_and_no_repeat(nx: nexus.Engine) -> None:
    client = Client(nx)
    client.say("first")
    client.say("second")
    client.answer(client.context(), "answer to both")
    assert place(Client(nx, items=client.items[:1]).context()) == ("fork", 1, 0)


@pytest.mark.parametrize("fields", [{"conversation": "a\nb\x1b[31m"}, {"scope": "a\nb\x1b[31m"}])
def test_label_of_a_session_is_one_line_and_equal_only_to_itself(nx: nexus.Engine, fields: dict[str, str]) -> None:
    items = [{"role": "user", "content": "hello"}]
    ctx = nx.mirror(items, **fields)
    nx.record(ctx, nexus.AgentResult((nexus.assistant("hi"),)))
    (session,) = nx.sessions()
    assert session.label.isprintable() and "a\\nb\\x1b[31m~" in session.label
    assert place(nx.mirror(items, **fields))[0] == "repeat"
    escaped = {name: value.encode("unicode_escape").decode() for name, value in fields.items()}
    assert place(nx.mirror(items, **escaped))[0] == "new"


def test_failed_call_is_tried_again_in_the_same_session(nx: nexus.Engine) -> None:
    client = talk(nx, 1)
    client.say("again")
    ctx = client.context()
    nx.record(ctx, nexus.AgentResult((), error="connection lost"))
    again = client.context()
    assert place(again) == ("append", 3, 0)
    client.answer(again, "here")
    assert len(nx.sessions()) == 1
    session = nx.sessions()[0].label
    assert [message.text() for message in nx.history(session)][-2:] == ["again", "here"]
    assert nx.replay(session, 2).to_openai() == again.to_openai()


LONG = "A long answer, which nobody else has. " * 10
assert len(LONG) > LONG_CHARS


def shown(ctx: nexus.AssembledContext) -> list[str]:
    return [item["content"] for item in ctx.to_openai()["messages"]]


def slide(client: Client, answer: str) -> list[tuple[str, int]]:
    """Six calls with windows; returns action and number of messages put back of each."""
    calls: list[tuple[str, int]] = []
    for number in range(6):
        del client.items[:2]
        ctx = client.turn(f"later {number}", f"{answer}later {number}")
        assert ctx.mirrored is not None
        calls.append((ctx.mirrored.action, ctx.mirrored.restored_count))
        assert shown(ctx)[ctx.mirrored.restored_count :] == [item["content"] for item in client.items[:-1]]
    return calls


NAMED = [{"scope": "cli"}, {"scope": "", "window": True}, {"conversation": "id", "window": True}, {"principal": "ann"}]


@pytest.mark.parametrize("named", NAMED, ids=str)
def test_window_stays_in_its_session_and_the_model_sees_all(nx: nexus.Engine, named: dict[str, Any]) -> None:
    client = Client(nx, **named)
    for number in range(4):
        client.turn(f"question {number}", f"{LONG}{number}")
    assert slide(client, LONG) == [("append", 2 * number + 2) for number in range(6)]
    assert [session.messages for session in nx.sessions()] == [20]


UNNAMED = [{"scope": ""}, {"scope": "mirror"}, {"conversation": "id"}, {"scope": "cli", "window": False}]


@pytest.mark.parametrize("unnamed", UNNAMED, ids=str)
def test_dropped_messages_stay_dropped_unless_the_list_is_a_window(nx: nexus.Engine, unnamed: dict[str, Any]) -> None:
    client = Client(nx, **unnamed)
    for number in range(4):
        client.turn(f"question {number}", f"{LONG}{number}")
    assert slide(client, LONG) == [("new", 0)] * 6


def test_short_messages_decide_nothing_also_when_one_session_alone_has_them(nx: nexus.Engine) -> None:
    client = talk(nx, 4)
    assert slide(client, "short ") == [("new", 0)] * 6


def test_window_of_messages_that_two_sessions_have_stays_as_it_is(nx: nexus.Engine) -> None:
    for secret in ("secret one", "secret two"):
        client = Client(nx)
        client.turn(secret, "Noted.")
        client.turn("What is it?", LONG)
    window = Client(nx, items=client.items[2:])
    window.turn("thanks", "welcome")
    window.say("more")
    assert shown(window.context()) == ["What is it?", LONG, "thanks", "welcome", "more"]


@pytest.mark.parametrize(("call_id", "restored"), [("call_7", 0), ("toolu_01Hq7", 2)])
def test_id_of_a_call_identifies_a_session_unless_it_is_a_number(nx: nexus.Engine, call_id: str, restored: int) -> None:
    client = Client(nx, "anthropic")
    client.turn("first", "yes")
    client.say("look")
    reply = client.wire.reply("", [("look", {})], "x")
    reply["content"][0]["id"] = call_id
    nx.record(client.context(), reply)
    client.items += [*client.wire.echo(reply), *client.wire.results([call_id], ["found"])]
    client.answer(client.context(), "seen")
    window = Client(nx, "anthropic", items=client.items[2:])
    window.say("and now")
    mirrored = window.context().mirrored
    assert mirrored is not None and mirrored.restored_count == restored


def test_clients_own_summary_in_front_is_what_the_model_sees(nx: nexus.Engine) -> None:
    client = Client(nx)
    for number in range(4):
        client.turn(f"question {number}", f"{LONG}{number}")
    client.items[:4] = [{"role": "user", "content": "Summary: two questions."}]
    ctx = client.turn("go on", "gladly")
    assert place(ctx) == ("new", 0, 6)
    assert shown(ctx)[0] == "Summary: two questions." and len(shown(ctx)) == 6
    client.say("and on")
    assert place(client.context()) == ("append", 7, 1)


def test_edited_old_message_is_edited_for_the_model_too(nx: nexus.Engine) -> None:
    client = Client(nx)
    client.turn("My number is 1111", LONG)
    client.turn("Call me", "Done.")
    client.items[0]["content"] = "My number is 2222"
    ctx = client.turn("again", "yes")
    assert place(ctx) == ("new", 0, 5)
    assert shown(ctx)[0] == "My number is 2222" and "1111" not in str(ctx.to_openai())
    client.items[2]["content"] = "Write me"
    ctx = client.turn("once more", "yes")
    assert place(ctx) == ("fork", 2, 5)
    assert shown(ctx)[2] == "Write me" and "Call me" not in shown(ctx)
    client.say("and again")
    assert place(client.context())[0] == "append"


def test_edited_message_of_a_window_is_a_fork_behind_the_earlier_ones(nx: nexus.Engine) -> None:
    client = Client(nx)
    for number in range(5):
        client.turn(f"question {number}", f"{LONG}{number}")
    del client.items[:2]
    client.items[4]["content"] = "another question"
    ctx = client.turn("now", "yes")
    assert place(ctx) == ("fork", 4, 5)
    assert shown(ctx) == ["question 0", f"{LONG}0", *(item["content"] for item in client.items[:-1])]


def test_path_of_an_earlier_version_with_other_messages_is_not_continued(
    nx: nexus.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions stored the keys of a list behind messages of another conversation."""
    talk(nx, 2)
    own = Client(nx, items=[{"role": "user", "content": "mine"}])
    ctx = own.context()
    assert ctx.mirrored is not None
    state: Any = ctx.mirrored.state
    other = nx.sessions()[0]
    at_end = replace(state.place, thread=other.thread, base=nx.ledger.store.head(other.thread)[0], session=other.label)
    with monkeypatch.context() as patch:
        patch.setattr(nx._mirror._finder, "find", lambda *_: at_end)
        own.answer(own.context(), "yours")
    assert len(nx.history(other.label)) == 6
    own.say("more")
    assert place(own.context()) == ("new", 0, 3)
    assert shown(own.context()) == ["mine", "yours", "more"]
    own.answer(own.context(), "fine")
    own.say("and more")
    assert place(own.context()) == ("append", 4, 1)


def test_clients_own_compaction_without_old_messages_is_a_new_session(nx: nexus.Engine) -> None:
    talk(nx, 3)
    client = Client(nx, items=[{"role": "user", "content": "Summary: three questions."}])
    assert place(client.context()) == ("new", 0, 1)


def test_common_last_words_do_not_join_other_conversations(nx: nexus.Engine) -> None:
    client = talk(nx, 3)
    client.turn("thanks", "You are welcome.")
    other = [{"role": "user", "content": "Other topic"}, {"role": "assistant", "content": "I see."}]
    other += [{"role": "user", "content": "thanks"}, {"role": "assistant", "content": "You are welcome."}]
    attached = Client(nx, items=[*other, {"role": "user", "content": "bye"}])
    assert place(attached.context()) == ("new", 0, 5)


def test_scopes_share_nothing(nx: nexus.Engine) -> None:
    first, second = talk(nx, 2, scope="alice"), talk(nx, 2, scope="bob")
    assert first.items == second.items
    assert stored_messages(nx) == 8
    assert sorted(session.label.partition("~")[0] for session in nx.sessions()) == ["alice", "bob"]


def test_principals_and_conversations_share_nothing(nx: nexus.Engine) -> None:
    names = [("", ""), ("ann", ""), ("bob", ""), ("", "ann"), ("ann", "ann"), ("ann", "bob")]
    clients = [talk(nx, 2, principal=principal, conversation=conversation) for principal, conversation in names]
    assert stored_messages(nx) == 4 * len(names)
    for client in clients:
        client.say("go on")
        assert place(client.context()) == ("append", 4, 1)


def test_branches_of_a_conversation_share_its_beginning(nx: nexus.Engine) -> None:
    client = talk(nx, 2, conversation="c1")
    title = Client(nx, items=[{"role": "user", "content": "Find a title."}], conversation="c1")
    assert place(title.context()) == ("new", 0, 1)
    title.answer(title.context(), "A title")
    branch = Client(nx, items=[*client.items[:2], {"role": "user", "content": "other"}], conversation="c1")
    assert place(branch.context()) == ("fork", 2, 1)
    branch.answer(branch.context(), "as you like")
    client.say("go on")
    assert place(client.context()) == ("append", 4, 1)
    assert {session.label.partition("~")[0] for session in nx.sessions()} == {"client/c1"}


@pytest.mark.parametrize("name", ["scope", "conversation", "principal", "window"])
def test_arguments_of_another_type_are_refused(nx: nexus.Engine, name: str) -> None:
    options: Any = {name: 5}
    with pytest.raises(BadSetting, match=name):
        nx.mirror([{"role": "user", "content": "hello"}], **options)


def test_list_is_found_again_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        items = talk(nx, 3).items
    with nexus.open(ledger=path, model="gpt-4o") as nx:
        client = Client(nx, items=items)
        client.say("still here?")
        assert place(client.context()) == ("append", 6, 1)


def test_ids_thinking_and_form_of_arguments_do_not_matter(nx: nexus.Engine) -> None:
    client = Client(nx, "anthropic")
    client.say("look")
    reply = client.wire.reply("", [("look", {"a": 1, "b": [2.0]})], "id")
    reply["content"].insert(0, {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    nx.record(client.context(), reply)
    call = {"type": "tool_use", "id": "renamed", "name": "look", "input": {"b": [2], "a": 1.0}}
    client.items.append({"role": "assistant", "content": [call]})
    client.items += client.wire.results(["renamed"], ["found"])
    ctx = client.context()
    assert place(ctx) == ("append", 2, 1)
    assert CHECKS["anthropic"](ctx.to_anthropic()) == []
    assert "Result not found" not in str(ctx.to_anthropic())


def test_parallel_identical_calls_store_the_past_once(tmp_path: Path) -> None:
    items = [{"role": r, "content": f"{r} {n}"} for n in range(8) for r in ("user", "assistant")]
    with nexus.open(ledger=tmp_path / "ledger.db", model="gpt-4o") as nx, ThreadPoolExecutor(8) as pool:
        clients = [Client(nx, items=[*items, {"role": "user", "content": "now"}]) for _ in range(8)]
        contexts = [client.context() for client in clients]
        list(pool.map(lambda n: clients[n].answer(contexts[n], f"answer {n % 4}"), range(8)))
        assert stored_messages(nx) == 17 + 4
        for session in nx.sessions():
            assert len(nx.history(session.label)) == 18
            nx.replay(session.label, 9)


def test_compaction_between_call_and_reply_keeps_the_session(nx: nexus.Engine) -> None:
    client = talk(nx, 30, budget=2_000)
    client.say("next")
    ctx = client.context()
    session = nx.sessions()[0].label
    assert nx.compact(session, budget=600, profile="bare")
    client.answer(ctx, "done")
    client.say("and next")
    assert place(client.context())[0] == "append"
    assert len(nx.sessions()) == 1
    assert nx.replay(session, 31).to_openai() == ctx.to_openai()


def test_system_messages_of_the_list_are_the_system_prompt(nx: nexus.Engine) -> None:
    items = [{"role": "system", "content": "Be brief. Build 1."}, {"role": "user", "content": "hello"}]
    ctx = nx.mirror(items, system="Rules first.", model="gpt-4o")
    assert ctx.system_prompt == "Rules first.\n\nBe brief. Build 1."
    nx.record(ctx, FORMATS["openai"].reply("hi", (), "x"))
    more = [{"role": "system", "content": "Be brief. Build 2."}, *items[1:]]
    more += [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "on"}]
    again = nx.mirror(more, system="Rules first.", model="gpt-4o")
    assert place(again) == ("append", 2, 1)
    assert again.accounting.prefix.state == "broken"


def test_system_message_in_the_middle_stays_where_it_is(nx: nexus.Engine) -> None:
    items = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    items += [{"role": "system", "content": "The user is in a hurry."}, {"role": "user", "content": "on"}]
    ctx = nx.mirror(items, model="gpt-4o")
    assert ctx.to_openai()["messages"] == items
    nx.record(ctx, FORMATS["openai"].reply("yes", (), "x"))
    items += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]
    assert place(nx.mirror(items, model="gpt-4o")) == ("append", 5, 1)


def test_reserve_lowers_the_budget(nx: nexus.Engine) -> None:
    items = [{"role": "user", "content": "hello"}]
    free = nx.mirror(items, budget=5_000).token_budget.available
    assert nx.mirror(items, budget=5_000, reserve=1_000).token_budget.available == free - 1_000
    with pytest.raises(BadSetting):
        nx.mirror(items, reserve=-1)


@pytest.mark.parametrize(
    "items", [[], [{"role": "assistant", "content": "hi"}], [{"role": "system", "content": "x"}], [5], None, 7]
)
def test_list_without_message_to_answer_is_refused(nx: nexus.Engine, items: Any) -> None:
    with pytest.raises(BadEvent):
        nx.mirror(items)


@pytest.mark.parametrize(("size", "remembered"), [(10, lists.MAX_LISTS), (lists.MAX_CHARACTERS // 8, 7)])
def test_many_short_lists_are_remembered_and_fewer_long_ones(size: int, remembered: int) -> None:
    cache = lists.ListCache()
    for number in range(lists.MAX_LISTS + 5 if size < 100 else 20):
        items = [{"role": "user", "content": [{"type": "text", "text": "x" * size}]}]
        cache.read(items, ListScope(f"client {number}"), None, "gpt-4o", "openai")
    assert len(cache._lists) == remembered


def test_size_of_a_remembered_list_grows_with_it_and_the_newest_stays_at_any_size() -> None:
    cache = lists.ListCache()
    scope = ListScope("client")
    items: list[dict[str, Any]] = []
    for number in range(12):
        items += [{"role": "user", "content": f"{number}" + "x" * (lists.MAX_CHARACTERS // 10)}]
        items += [{"role": "assistant", "content": "yes"}]
        assert cache.read([*items], scope, None, "gpt-4o", "openai").characters >= sum(len(i["content"]) for i in items)
    assert len(cache._lists) == 1
    cache.read([{"role": "user", "content": "hello"}], ListScope("other"), None, "gpt-4o", "openai")
    assert len(cache._lists) == 1


def test_list_that_the_client_changed_in_place_is_read_again(nx: nexus.Engine) -> None:
    items: list[Any] = [{"role": "user", "content": "hello"}]
    nx.mirror(items, model="gpt-4o")
    items[0]["content"] = "other words"
    assert nx.mirror(items, model="gpt-4o").to_openai()["messages"] == items


def conversation(turns: int, *, changed: int = -1) -> list[dict[str, str]]:
    """Return a list that ends with a question; one of its answers may be another."""
    items = [{"role": role, "content": f"{role} {n}"} for n in range(turns) for role in ("user", "assistant")]
    if changed >= 0:
        items[2 * changed + 1]["content"] = "another answer"
    return [*items, {"role": "user", "content": "now"}]


@pytest.mark.parametrize(
    ("profile", "changed", "shared"),
    [
        ("bare", -1, 13),
        ("bare", 1, 3),  # those before the other answer
        ("turnlog", -1, 0),  # the times that the call showed are not those that were stored
        ("turnlog", 1, 0),
    ],
)
def test_history_that_another_client_stored_first_is_replayed_as_it_was_sent(
    tmp_path: Path, profile: str, changed: int, shared: int
) -> None:
    clock = FixedClock()
    with (
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o", clock_ms=clock) as nx,
        nexus.open(ledger=tmp_path / "l.db", model="gpt-4o", clock_ms=clock) as other,
    ):
        late = nx.mirror(conversation(6), profile=profile)
        clock.advance(60_000)
        first = other.mirror(conversation(6, changed=changed), profile=profile)
        clock.advance(60_000)
        bodies = [first.body_hash, late.body_hash]
        places = [
            engine.record(ctx, nexus.AgentResult((nexus.assistant(text),))).thread
            for engine, ctx, text in ((other, first, "first"), (nx, late, "late"))
        ]
        labels = {session.thread: session.label for session in nx.sessions()}
        assert [nx.replay(labels[thread], 7).body_hash for thread in places] == bodies
        assert stored_messages(nx) == 26 - shared + 2


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize(
    "models", [("gpt-4o", "claude-sonnet-4-5"), ("claude-sonnet-4-5", "gpt-4o")], ids=" then ".join
)
def test_event_that_a_client_of_another_provider_stored_first_is_replayed_as_it_was_sent(
    nx: nexus.Engine, models: tuple[str, str], is_late: bool
) -> None:
    """A client's call was not answered; another one asks its questions, and one more."""
    begun, more = conversation(2), {"role": "user", "content": "and this"}
    first = nx.mirror([*begun, more], model=models[0], scope="shop")
    ctx = nx.mirror([*begun, more, more], model=models[1], scope="shop") if is_late else None
    nx.record(first, nexus.AgentResult((nexus.assistant("first"),)))
    ctx = ctx or nx.mirror([*begun, more, more], model=models[1], scope="shop")
    committed = nx.record(ctx, nexus.AgentResult((nexus.assistant("second"),)))
    (label,) = [session.label for session in nx.sessions() if session.thread == committed.thread]
    assert nx.replay(label, 3).body_hash == ctx.body_hash
