"""Lists whose first message is another one each time, such as Gemini CLI's date and folder, continue their session."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from engine.mirror.clients import FORMATS, Client

LONG = "A long answer, which nobody else has. " * 10


def folder(files: str) -> str:
    """A client's first message: what it has in common with others, and a listing."""
    return f"<session_context>\nThe folder has these files.\n{files} " + "and many others, " * 15


@pytest.fixture
def nx() -> Iterator[nexus.Engine]:
    with nexus.open(ledger=":memory:", model="gpt-4o") as engine:
        yield engine


def talk(nx: nexus.Engine, first: str = "one", answer: str = LONG, turns: int = 2, **fields: Any) -> Client:
    client = Client(nx, **{"window": False, **fields})
    for number in range(turns):
        client.turn(f"question {number}" if number else folder(first), f"{answer}{number}")
    return client


def resume(client: Client, first: str) -> nexus.AssembledContext:
    """Ask with another first message, and return the context."""
    client.items[:1] = client.wire.user(folder(first))
    client.say("and now?")
    return client.context()


def labels(nx: nexus.Engine) -> list[str]:
    return [session.label for session in nx.sessions()]


@pytest.mark.parametrize("name", FORMATS)
def test_list_with_another_first_message_stays_in_its_session(name: str, tmp_path: Path) -> None:
    path, model = tmp_path / "l.db", FORMATS[name].model
    with nexus.open(ledger=path, model=model) as nx:
        client = talk(nx, format=name)
        (label,) = labels(nx)
    for turn in range(3):
        with nexus.open(ledger=path, model=model) as nx:
            client.nx = nx
            ctx = resume(client, f"folder of turn {turn}")
            sent = str(client.wire.body(ctx))
            assert ctx.session_label == label
            assert f"folder of turn {turn}" in sent
            assert f"folder of turn {turn - 1}" not in sent
            client.answer(ctx, f"{LONG}{turn}")
            client.say("and then?")
            ctx = client.context()
            assert ctx.mirrored is not None
            assert (ctx.session_label, ctx.mirrored.missing_count) == (label, 1)
            client.answer(ctx, "fine")
            assert labels(nx) == [label]
            thread = nx.ledger.store.thread_of(label)
            assert thread is not None
            replayed = nx.replay(label, nx.ledger.store.thread(thread).turn)
            assert client.wire.body(replayed) == client.wire.body(ctx)


def test_first_message_that_is_as_it_was_before_stays_in_the_session_too(nx: nexus.Engine) -> None:
    client = talk(nx)
    (label,) = labels(nx)
    for first in ("two", "one", "two", "one"):
        ctx = resume(client, first)
        assert ctx.session_label == label
        client.answer(ctx, LONG)
    assert labels(nx) == [label]


def test_ids_of_calls_stand_for_a_long_message(nx: nexus.Engine) -> None:
    client = Client(nx, "gemini", window=False)
    client.say(folder("one"))
    client.answer(client.context(), "short", [("look", {})], stem="look_1795971436006")
    client.turn("seen", "done")
    assert resume(client, "two").session_label == labels(nx)[0]


@pytest.mark.parametrize("other", [{"principal": "bob"}, {"conversation": "c2"}, {"scope": "other"}], ids=str)
def test_list_of_another_user_conversation_or_client_is_a_session_of_its_own(
    nx: nexus.Engine, other: dict[str, str]
) -> None:
    client = talk(nx, principal="ann", conversation="c1")
    stranger = Client(nx, items=copy.deepcopy(client.items), window=False)
    stranger.principal, stranger.conversation = "ann", "c1"
    for name, value in other.items():
        setattr(stranger, name, value)
    ctx = resume(stranger, "two")
    assert ctx.session_label not in labels(nx)
    stranger.answer(ctx, "yes")
    assert len(labels(nx)) == 2


def without_an_answer(client: Client) -> None:
    del client.items[1:3]


def edited(client: Client) -> None:
    client.items[2:3] = client.wire.user("another question")


def rewound(client: Client) -> None:
    del client.items[2:]


def of_another_kind(client: Client) -> None:
    client.items[:1] = client.wire.user("You are a poet.\n" + "and more, " * 40)


def short(client: Client) -> None:
    client.items[:1] = client.wire.user("<session_context>\nanother")


@pytest.mark.parametrize("change", [without_an_answer, edited, rewound, of_another_kind, short])
def test_list_that_differs_in_more_than_the_first_message_is_a_session_of_its_own(
    nx: nexus.Engine, change: Any
) -> None:
    client = talk(nx)
    client.items[:1] = client.wire.user(folder("two"))
    change(client)
    client.say("and now?")
    assert client.context().session_label not in labels(nx)


def test_short_answers_and_few_messages_decide_nothing(nx: nexus.Engine) -> None:
    assert resume(talk(nx, answer="yes "), "two").session_label not in labels(nx)
    assert resume(talk(nx, turns=1), "two").session_label not in labels(nx)


def test_parallel_conversations_with_the_same_answers_are_never_joined(nx: nexus.Engine) -> None:
    talk(nx, "one")
    unseen = talk(nx, "other")
    before = labels(nx)
    assert len(before) == 2
    assert resume(unseen, "two").session_label not in before  # which of the two it was, nobody knows


def test_longer_conversation_with_the_same_answers_keeps_its_list_from_a_shorter_one(nx: nexus.Engine) -> None:
    longer = talk(nx, "one", turns=3)
    talk(nx, "other", turns=2)
    before = labels(nx)
    del longer.items[4:]
    assert resume(longer, "two").session_label not in before


def test_request_beside_the_conversation_with_another_first_message_is_a_session_of_its_own(nx: nexus.Engine) -> None:
    main: dict[str, Any] = {"model": "gpt-4o", "system": "You are a coding agent."}
    items = [{"role": "user", "content": folder("one")}]
    for number in range(2):
        ctx = nx.mirror(copy.deepcopy(items), scope="cli", window=False, tools=[LOOK], **main)
        nx.record(ctx, nexus.AgentResult((nexus.assistant(f"{LONG}{number}"),)))
        items += [{"role": "assistant", "content": f"{LONG}{number}"}, {"role": "user", "content": "more"}]
    (label,) = labels(nx)
    items[0]["content"] = folder("two")
    router = nx.mirror(copy.deepcopy(items), scope="cli", window=False, model="gpt-5", system="You choose a model.")
    assert router.session_label != label
    nx.record(router, nexus.AgentResult((nexus.assistant("flash"),)))
    ctx = nx.mirror(copy.deepcopy(items), scope="cli", window=False, tools=[LOOK], **main)
    assert ctx.session_label == label
    assert "flash" not in str(ctx.to_openai())


LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def test_two_such_calls_at_once_are_both_stored(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    with nexus.open(ledger=path, model="gpt-4o") as nx, nexus.open(ledger=path, model="gpt-4o") as other:
        client = talk(nx)
        (label,) = labels(nx)
        twin = Client(other, items=copy.deepcopy(client.items), window=False)
        ctx, twins = resume(client, "two"), resume(twin, "three")
        client.answer(ctx, "first")
        twin.answer(twins, "second")
        texts = {label: [message.text() for message in nx.history(label)] for label in labels(nx)}
        assert texts.pop(label)[-1] == "first"
        ((*_, last),) = texts.values()
        assert last == "second"


def test_list_over_the_budget_is_cut_again(nx: nexus.Engine) -> None:
    client = Client(nx, window=False, budget=700)
    for number in range(12):
        client.turn(f"question {number}" if number else folder("one"), f"{LONG}{number}")
    (label,) = labels(nx)
    ctx = resume(client, "two")
    assert ctx.session_label == label
    assert ctx.token_budget.used.total <= 700
    client.answer(ctx, "yes")
    client.say("more")
    extended = client.context()
    assert (
        client.wire.body(extended)["messages"][: len(client.wire.body(ctx)["messages"])]
        == client.wire.body(ctx)["messages"]
    )


def test_ids_and_repeated_results_of_the_client_keep_a_list_in_its_session() -> None:
    """Gemini CLI gives calls other ids, and repeats their results, when a conversation is resumed."""

    def text(role: str, words: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"text": words}]}

    def worked(call_id: str, times: int) -> list[dict[str, Any]]:
        call = {"functionCall": {"name": "run", "args": {"command": "cat notes"}, "id": call_id}}
        result = {"functionResponse": {"name": "run", "id": call_id, "response": {"output": "notes"}}}
        return [{"role": "model", "parts": [{"text": "I read."}, call]}, {"role": "user", "parts": [result] * times}]

    asked = [text("user", folder("one"))]
    again = [text("user", folder("two")), *worked("run__run_17_0", 2), text("model", "Done."), text("user", "And now?")]
    reply = {"text": "I read."}, {"functionCall": {"name": "run", "args": {"command": "cat notes"}}}
    found: list[str] = []
    with nexus.open(ledger=":memory:", model="gemini-2.5-pro") as nx:
        for items, parts in ((asked, reply), ([*asked, *worked("run_17_0", 1)], ({"text": "Done."},))):
            ctx = nx.mirror(items, scope="cli", window=False)
            content = {"role": "model", "parts": [*parts]}
            nx.record(ctx, {"candidates": [{"content": content, "finishReason": "STOP"}]})
            found.append(ctx.session_label)
        found.append(nx.mirror(again, scope="cli", window=False).session_label)
    assert found == [found[0]] * 3
