"""The MCP server through the SDK's client: each tool, its pages, its errors, and who may see what."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError

import nexus
from adapters.planted_facts import planted_facts
from adapters.running_mcp import server_of
from nexus.adapters.mcp_server.answers import ANSWER_TOKENS, McpAnswers, SessionPrincipals
from nexus.adapters.mcp_server.definitions import WINDOW_URI, ReadArguments, SearchArguments
from nexus.policy.values import Principal, Toolset
from nexus.types.message import ToolCall, tool

Call = Callable[..., Awaitable[Any]]


def use(nx: nexus.Engine, program: Callable[[Client], Awaitable[Any]], principal: str = "", **options: Any) -> Any:
    """Run a program with a client of the server."""

    failures: list[BaseException] = []

    async def run() -> Any:
        async with Client(server_of(nx, principal, **options)) as client:
            try:
                return await program(client)
            except BaseException as failure:  # noqa: BLE001 - the client would make a group of it
                failures.append(failure)

    result = asyncio.run(run())
    if failures:
        raise failures[0]
    return result


async def content(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the answer of a tool, which is the same as text and as a value, and small enough."""
    result = await client.call_tool(name, arguments)
    text = result.content[0].text  # type: ignore[union-attr]
    assert not result.is_error, text
    assert json.loads(text) == result.structured_content
    assert nexus.count_tokens(text, model="gpt-5") <= ANSWER_TOKENS
    answer: dict[str, Any] = result.structured_content
    return answer


async def error(client: Client, name: str, **arguments: Any) -> str:
    """Return the text of a tool's error."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.structured_content
    text: str = result.content[0].text  # type: ignore[union-attr]
    return text


def talk(nx: nexus.Engine, session: str, *texts: str, **options: Any) -> None:
    """Store turns with these messages of the user."""
    for text in texts:
        ctx = nx.assemble(text, session=session, **options)
        nx.record(ctx, nexus.AgentResult((nexus.assistant("Noted."),)))


def test_definitions_have_at_most_900_tokens_with_their_schemas() -> None:
    async def program(client: Client) -> Any:
        return await client.list_tools()

    with nexus.open(ledger=":memory:") as nx:
        listed = use(nx, program).model_dump(by_alias=True, exclude_none=True, mode="json")
    assert [row["name"] for row in listed["tools"]] == ["search", "read", "context", "recall", "remember"]
    assert all(row["outputSchema"]["type"] == "object" for row in listed["tools"])
    assert nexus.count_tokens(json.dumps(listed), model="gpt-5") < 900


def test_remember_is_offered_with_write_only(tmp_path: Path) -> None:
    async def program(client: Client) -> Any:
        names = [row.name for row in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match="start it with --write"):
            await client.call_tool("remember", {"fact": "x"})
        return names

    with nexus.open(tmp_path) as nx:
        assert "remember" not in use(nx, program, writes=False)


def test_cut_fact_is_found_and_read_with_its_place(tmp_path: Path) -> None:
    async def program(client: Client) -> None:
        (hit, *_) = (await content(client, "search", query="servicing of cranes"))["hits"]
        assert (hit["session"], hit["role"]) == ("main", "user")
        assert "14 March" in hit["text"]
        read = await content(client, "read", session=hit["session"], at=hit["at"])
        assert [row["text"] for row in read["messages"]] == ["The crane is serviced on 14 March."]
        turn = await content(client, "read", session="main", at="turn 1")
        assert [row["role"] for row in turn["messages"]] == ["user", "assistant"]
        listed = await content(client, "search")
        assert [row["session"] for row in listed["hits"]] == ["main"]
        window = await content(client, "context", session="main")
        assert window["why"][0].startswith("Omitted: Earlier messages left out to stay within the token budget: ")

    with nexus.open(tmp_path, model="gpt-4o", budget=2_500) as nx:
        talk(
            nx,
            "main",
            "The crane is serviced on 14 March.",
            *(f"Turn {n}. " + "Sand and gravel. " * 80 for n in range(12)),
        )
        use(nx, program)


def test_large_result_is_read_whole_in_pages_of_any_script(tmp_path: Path) -> None:
    rng = random.Random(3)
    log = "\n".join(
        rng.choice(("GET /harbor 200 ", "港のクレーン", '"\\u00e9\\"', "🚢🚢", "\ud800", "\x00\x1b[31m"))
        * rng.randrange(1, 30)
        for _ in range(800)
    )

    async def program(client: Client) -> str:
        text = cursor = ""
        for _ in range(100):
            page = await content(client, "read", session="main", at="call-1", **({"cursor": cursor} if cursor else {}))
            text += "".join(row["text"] for row in page["messages"] if row["role"] == "tool")
            cursor = page.get("cursor", "")
            if not cursor:
                return text
        raise AssertionError("no end")

    with nexus.open(tmp_path) as nx:
        ctx = nx.assemble("Show the log.", session="main")
        nx.record(ctx, nexus.AgentResult((nexus.assistant("I look.", ToolCall("call-1", "read_log", "{}")),)))
        nx.record(
            nx.assemble([tool("call-1", log, "read_log")], session="main"),
            nexus.AgentResult((nexus.assistant("Done."),)),
        )
        text = use(nx, program)
    assert text == f"result of read_log:\n{log}".replace("\ud800", "\ufffd")


def test_pages_of_a_search_have_each_hit_once(tmp_path: Path) -> None:
    async def program(client: Client) -> list[str]:
        places: list[str] = []
        cursor = ""
        while True:
            page = await content(client, "search", query="gravel", cursor=cursor)
            places += [row["at"] for row in page["hits"]]
            if not (cursor := page.get("cursor", "")):
                return places

    with nexus.open(tmp_path) as nx:
        talk(nx, "main", *(f"Gravel number {n}." for n in range(40)))
        places = use(nx, program)
    assert len(places) == len({*places}) == 40


def test_window_adds_up_and_its_app_is_served(tmp_path: Path) -> None:
    async def program(client: Client) -> None:
        window = await content(client, "context")
        assert sum(block["tokens"] for block in window["blocks"]) == window["used"] < window["available"]
        context = next(row for row in (await client.list_tools()).tools if row.name == "context")
        assert context.meta == {"ui": {"resourceUri": WINDOW_URI}}
        assert [row.uri for row in (await client.list_resources()).resources] == [WINDOW_URI]
        (page,) = (await client.read_resource(WINDOW_URI)).contents
        assert page.mime_type == "text/html;profile=mcp-app"
        assert "ui/initialize" in page.text  # type: ignore[union-attr]
        assert "http" not in page.text.replace("http-equiv", "")  # type: ignore[union-attr]

    with nexus.open(tmp_path) as nx:
        talk(nx, "main", "Hello")
        use(nx, program)


def test_window_says_what_is_omitted(tmp_path: Path) -> None:
    with nexus.open(tmp_path) as nx:
        talk(nx, "main", *(f"Question {number}" for number in range(8)))
        nx.compact("main")
        why = use(nx, lambda client: content(client, "context"))["why"]
    assert any(reason.startswith("Omitted: messages before the session's last compaction") for reason in why), why


def test_facts_are_kept_one_by_one_when_several_are_remembered_at_once(tmp_path: Path) -> None:
    async def program(client: Client) -> None:
        facts = [f"Fact number {n} is about harbors." for n in range(12)]
        await asyncio.gather(*(content(client, "remember", fact=fact, section="Harbor") for fact in facts))
        found = (await content(client, "recall", query="harbors"))["facts"]
        assert sorted(row["text"] for row in found) == sorted(facts)
        assert {row["section"] for row in found} == {"Harbor"}
        assert "already known" in await error(client, "remember", fact=facts[0])
        assert "secret" in await error(client, "remember", fact="The key is AKIAIOSFODNN7EXAMPLE")

    with nexus.open(tmp_path) as nx:
        use(nx, program)
        assert len(nx.memory.notebook().changes()) == 12


def test_questions_in_other_words_find_a_tenth_of_the_facts_at_once() -> None:
    """All 200 in `test_mcp_facts.py`."""
    facts = [fact for fact in planted_facts() if fact.session in ("project-00", "project-01")]
    with nexus.open(ledger=":memory:") as nx:
        for session in ("project-00", "project-01"):
            talk(nx, session, *(fact.text for fact in facts if fact.session == session))
        answers = McpAnswers(nx)
        for fact in facts:
            hits = answers.call("search", SearchArguments(query=fact.question))["hits"]
            assert any(fact.answer in hit["text"] for hit in hits), fact


# who may see what -----------------------------------------------------------------------------------------------------

SECRET = "The treasure lies below the third pier."


@pytest.fixture
def shared(tmp_path: Path) -> Any:
    """An engine with sessions of alice and bob, a fork and an alias of alice's, and a deleted one."""
    with nexus.open(tmp_path) as nx:
        talk(nx, "dm:bob", "Bob likes gravel.", principal="bob")
        talk(nx, "dm:alice", SECRET, principal="alice")
        nx.ledger.fork("pier-copy", "dm:alice")
        nx.ledger.sessions.rename("dm:alice", "dm:alice-old")
        talk(nx, "gone", f"Deleted: {SECRET}")
        nx.ledger.sessions.delete("gone")
        yield nx


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    *(
        ("search", {"query": query})
        for query in ("treasure", "third pier", SECRET, '"below the third"', "treasures piers lies")
    ),
    *(
        ("search", {"query": "treasure", "session": name})
        for name in ("dm:alice", "dm:alice-old", "pier-copy", "gone", "*", "%")
    ),
    *(
        ("search", {"query": "treasure", "cursor": cursor})
        for cursor in ("0", "1", "999999", "-1", "1e9", "12.0:0", "' OR 1=1")
    ),
    *(("search", {"query": "treasure", "role": role}) for role in ("user", "system")),
    ("search", {}),
    ("search", {"cursor": "1"}),
    *(
        ("read", {"session": name})
        for name in ("dm:alice", "dm:alice-old", "pier-copy", "gone", "dm:alice\x00", "DM:ALICE", "last")
    ),
    *(
        ("read", {"session": "dm:bob", "at": at})
        for at in ("0-999999", "../dm:alice", "dm:alice 1.0", "-1", "999.0", "turn 0")
    ),
    *(
        ("read", {"session": "dm:bob", "cursor": cursor})
        for cursor in ("999999999999.9:9", "1.0:999999", "dm:alice 1.0:0")
    ),
    *(("context", {"session": name}) for name in ("dm:alice", "pier-copy", "gone", "/etc/passwd")),
    ("context", {}),
    ("recall", {"query": "treasure"}),
    *(
        ("search", {"query": text})
        for text in ("treasure " * 2_000_000, "\ud800treasure", "\udfff" * 100, "treasure\x00*")
    ),
]


def test_forty_hostile_calls_show_nothing_of_another_principal(shared: nexus.Engine) -> None:
    assert len(HOSTILE) >= 40

    async def program(client: Client) -> list[str]:
        texts: list[str] = []
        for name, arguments in HOSTILE:
            safe = json.loads(json.dumps(arguments).replace("\\ud800", "\\ufffd").replace("\\udfff", "\\ufffd"))
            result = await client.call_tool(name, safe)
            text: str = result.content[0].text  # type: ignore[union-attr]
            texts.append(text)
            if result.is_error:
                assert len(text) < 1_600 and "(" in text, text
        return texts

    texts = use(shared, program, "bob")
    shown = [
        text for text in texts if "pier." in text or "below the" in text or "alice" in text.replace("'dm:alice", "")
    ]
    assert [text for text in shown if "not found" not in text] == []


def test_session_of_another_principal_is_as_unknown_as_none(shared: nexus.Engine) -> None:
    async def program(client: Client) -> tuple[str, str]:
        return await error(client, "read", session="dm:alice-old"), await error(client, "read", session="dm:nobody-old")

    theirs, none = use(shared, program, "bob")
    assert theirs == none.replace("nobody", "alice")


def test_principal_sees_its_own_session_and_the_local_user_all(shared: nexus.Engine) -> None:
    async def sessions(client: Client) -> set[str]:
        return {row["session"] for row in (await content(client, "search"))["hits"]}

    async def found(client: Client) -> str:
        return json.dumps(await content(client, "search", query="treasure"))

    assert use(shared, sessions, "bob") == {"dm:bob"}
    assert use(shared, sessions) == {"dm:bob", "dm:alice-old", "pier-copy"}
    assert SECRET in use(shared, found)


PEOPLE = ("ann", "ben")

TALKS = st.lists(
    st.tuples(st.sampled_from((*PEOPLE, "")), st.sampled_from(("mirror", "main", "team", "fork", "import"))), max_size=9
)


def hold(nx: nexus.Engine, talks: list[tuple[str, str]]) -> None:
    """Let people, and the local user, who has no name, speak in sessions. Each message has its author's mark."""
    for number, (person, way) in enumerate(talks):
        text = f"treasure mark-{person}-x {number}"
        owner: dict[str, Any] = {"principal": person} if person else {}
        reply = nexus.AgentResult((nexus.assistant(text),))
        if way == "mirror":
            ctx = nx.mirror([{"role": "user", "content": text}], **owner, conversation="c", model="gpt-4o")
            nx.record(ctx, reply)
        elif way == "import":
            nexus.add_messages(
                nx, [nexus.user(text)], session=f"in-{person}", body={"principal": person} if person else {}
            )
        elif way == "fork" and nx.sessions():
            nx.ledger.fork(f"fork-{number}", nx.sessions()[0].label)
        else:
            nx.record(nx.assemble(text, session=way, **owner, model="gpt-4o"), reply)


def shown_to(nx: nexus.Engine, person: str) -> str:
    """Return all that a principal can see: each session whole, and what a search finds."""
    answers = McpAnswers(nx, person)
    texts = [json.dumps(answers.call("search", SearchArguments(query))) for query in ("", "treasure", "mark")]
    for info in nx.sessions():
        for arguments in (ReadArguments(info.label), SearchArguments("treasure", info.label)):
            name = "read" if isinstance(arguments, ReadArguments) else "search"
            with suppress(nexus.NoSuchSession):
                texts.append(json.dumps(answers.call(name, arguments)))
    return "".join(texts)


def marks_of_others(nx: nexus.Engine, person: str) -> list[str]:
    text = shown_to(nx, person)
    return [f"mark-{other}-x" for other in PEOPLE if other != person and f"mark-{other}-x" in text]


@settings(max_examples=40, deadline=None)
@given(TALKS)
def test_no_principal_sees_what_another_said(talks: list[tuple[str, str]]) -> None:
    with nexus.open(ledger=":memory:") as nx:
        hold(nx, talks)
        assert [marks_of_others(nx, person) for person in PEOPLE] == [[], []]


def test_principals_see_their_own_sessions_also_as_they_grow() -> None:
    with nexus.open(ledger=":memory:") as nx:
        session_principals = SessionPrincipals(nx.store)

        def sessions(person: str) -> set[str]:
            answers = McpAnswers(nx, person, session_principals=session_principals)
            return {row["session"] for row in answers.call("search", SearchArguments())["hits"]}

        hold(nx, [("ann", "main"), ("ben", "team")])
        assert (sessions("ann"), sessions("ben")) == ({"main"}, {"team"})
        hold(nx, [("ben", "main")])
        assert (sessions("ann"), sessions("ben")) == (set(), {"team"})
        assert sessions("") == {"main", "team"}


def test_principals_that_are_not_read_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionPrincipals, "of", lambda *_: {"ann"})
    with nexus.open(ledger=":memory:") as nx:
        hold(nx, [("ben", "mirror")])
        assert marks_of_others(nx, "ann") == ["mark-ben-x"]


def test_policy_decides_about_tools_and_unknown_principals(tmp_path: Path) -> None:
    policy = nexus.Policy(
        toolsets={"reading": Toolset(("search", "read"))}, principals={"bob": Principal(toolset="reading")}
    )

    async def program(client: Client) -> tuple[list[str], str]:
        names = [row.name for row in (await client.list_tools()).tools]
        return names, await error(client, "context")

    with nexus.open(tmp_path, policy=policy) as nx:
        talk(nx, "main", "Hello")
        names, refused = use(nx, program, "bob")
        assert (names, "not in toolset 'reading'" in refused) == (["search", "read"], True)
        names, refused = use(nx, program, "mallory")
        assert (names, "does not define the principal" in refused) == ([], True)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("read", {"session": 3}, "Expected `str`, got `int`"),
        ("read", {}, "required field `session`"),
        ("search", {"query": "x", "limit": 5}, "unknown field `limit`"),
        ("search", {"query": "!?"}, "punctuation alone"),
        ("search", {"query": "x" * 3_000}, "length <= 2000"),
        ("read", {"session": "main"}, "search without a query"),
        ("context", {}, "no session yet"),
        ("recall", {"query": "..."}, "punctuation alone"),
        ("remember", {"fact": " "}, "empty"),
    ],
)
def test_errors_say_what_to_do(name: str, arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    async def program(client: Client) -> str:
        return await error(client, name, **arguments)

    with nexus.open(tmp_path) as nx:
        assert text in use(nx, program)


def test_reading_goes_on_behind_a_range(tmp_path: Path) -> None:
    with nexus.open(tmp_path) as nx:
        talk(nx, "main", *(f"Message {n}. " + "gravel " * 300 for n in range(8)))
        answers = McpAnswers(nx)
        texts: list[str] = []
        cursor = ""
        while True:
            page = answers.call("read", ReadArguments("main", "3-8", cursor))
            texts += [row["text"] for row in page["messages"] if row["role"] == "user"]
            if not (cursor := page.get("cursor", "")):
                break
        whole = "".join(texts)
    assert [f"Message {n}" in whole for n in range(8)] == [1 <= n < 4 for n in range(8)]
