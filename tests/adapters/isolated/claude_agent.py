"""The Claude Agent SDK with the session store: its own conformance suite, and its program with a scripted model.

`test_versions` runs this in an environment of its own, because the package contains the program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, query
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey

import nexus
from cli.running import run
from nexus.adapters.claude_agent import NexusSessionStore
from nexus.testing.model_server import ModelRequest, Response, model_server, reply

TURNS = 20
KEY: SessionKey = {"project_key": "project", "session_id": "3f0c"}

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class ShellModel:
    """Answers a question with two calls of the shell, of which one fails now and then, and their results with a text."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._lock = Lock()

    def __call__(self, request: ModelRequest) -> Response:
        with self._lock:
            self.bodies.append(request.body)
            number = len(self.bodies)
        if '"tool_result"' in json.dumps(request.body["messages"][-1]):
            return reply(f"Answer {number}.", reply_id=str(number))(request)
        commands = (f"echo one-{number}", f"echo two-{number}; exit {number % 3}")
        calls = [
            nexus.ToolCall(f"toolu_{number}_{index}", "Bash", json.dumps({"command": command, "description": "look"}))
            for index, command in enumerate(commands)
        ]
        return reply(f"I look {number}.", *calls, reply_id=str(number))(request)


@pytest.fixture
def nx(tmp_path: Path) -> Iterator[nexus.Engine]:
    with nexus.open(ledger=tmp_path / "ledger.db") as engine:
        yield engine


def test_store_passes_the_conformance_suite(tmp_path: Path) -> None:
    engines: list[nexus.Engine] = []

    def make_store() -> NexusSessionStore:
        engines.append(nexus.open(ledger=tmp_path / f"{len(engines)}.db"))
        return NexusSessionStore(engines[-1], principal="ada")

    asyncio.run(run_session_store_conformance(make_store))
    for engine in engines:
        engine.close()
    assert len(engines) > 10


def talk(nx: nexus.Engine, url: str, folder: Path, texts: list[str], **options: Any) -> str:
    """Say texts to the SDK's program, each in a new folder for its settings, so that only the store has the session."""
    session = options.pop("resume", None)
    store = NexusSessionStore(nx, principal="ada")

    async def prompt(text: str) -> Any:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        content: list[Any] = [{"type": "text", "text": text}]
        if text.endswith("image?"):
            content.append({"type": "image", "source": source})
        yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}

    async def converse() -> str:
        own = session
        for text in texts:
            home = folder / f"home-{text}"
            settings = ClaudeAgentOptions(
                session_store=store,
                resume=own,
                cwd=folder,
                allowed_tools=["Bash"],
                env={
                    "ANTHROPIC_BASE_URL": url,
                    "ANTHROPIC_API_KEY": "k",
                    "CLAUDE_CONFIG_DIR": str(home),
                    "HOME": str(home),
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                },
                **options,
            )
            async for message in query(prompt=prompt(text), options=settings):
                own = getattr(message, "session_id", None) or own
        assert own is not None
        return own

    return asyncio.run(converse())


def texts_of(nx: nexus.Engine, label: str) -> list[str]:
    """What the user said, without the lines in which the program says where it keeps an image."""
    texts = [message.text() for message in nx.history(label) if message.role == "user"]
    return [text for text in texts if not text.startswith("[Image: source:")]


def test_sessions_resume_from_the_store_and_are_imported(nx: nexus.Engine, tmp_path: Path) -> None:
    model = ShellModel()
    questions = [f"question {turn}{', what is in this image?' if turn in (3, 17) else ''}" for turn in range(TURNS)]
    with model_server(model) as server:
        session = talk(nx, server.anthropic_url, tmp_path, questions)
    assert len(model.bodies) == 2 * TURNS
    sent = json.dumps(model.bodies[-1]["messages"])
    assert all(question in sent for question in questions)  # the program read them from the store each time
    history = nx.history(f"ada/{session}")
    assert texts_of(nx, f"ada/{session}") == questions
    assert len([call for message in history for call in message.calls()]) == 2 * TURNS
    results = [result for message in history for result in message.results()]
    assert len(results) == 2 * TURNS
    assert 0 < sum(result.is_error for result in results) < TURNS
    images = [part for message in history for part in message.parts if isinstance(part, nexus.Image)]
    assert [image.data for image in images] == [PIXEL, PIXEL]
    for command in ("history", "explain", "context", "cache show"):
        result = run(*command.split(), f"ada/{session}", "--ledger", tmp_path / "ledger.db", folder=tmp_path)
        assert (result.code, bool(result.out)) == (0, True), result


def test_fork_is_a_session_of_its_own(nx: nexus.Engine, tmp_path: Path) -> None:
    with model_server(ShellModel()) as server:
        first = talk(nx, server.anthropic_url, tmp_path, ["first", "second"])
        fork = talk(nx, server.anthropic_url, tmp_path, ["other third"], resume=first, fork_session=True)
        talk(nx, server.anthropic_url, tmp_path, ["third"], resume=first)
    assert fork != first
    assert texts_of(nx, f"ada/{first}") == ["first", "second", "third"]
    assert texts_of(nx, f"ada/{fork}") == ["first", "second", "other third"]


def entry(uuid: str, text: str, parent: str | None = None) -> Any:
    message = {"role": "user", "content": text}
    times = {"timestamp": "2026-11-01T10:00:00.000Z", "sessionId": KEY["session_id"]}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **times}


def test_repeated_entries_are_stored_once(nx: nexus.Engine) -> None:
    async def use() -> list[Any]:
        store = NexusSessionStore(nx)
        first, second = entry("a", "one"), entry("b", "two", "a")
        await store.append(KEY, [first, second, first])
        await store.append(KEY, [second, {"type": "tag", "tag": "x"}])
        later = NexusSessionStore(nx)
        await later.append(KEY, [second, {"type": "tag", "tag": "x"}])
        return await later.load(KEY) or []

    assert [found.get("uuid") for found in asyncio.run(use())] == ["a", "b", None, None]
    assert texts_of(nx, KEY["session_id"]) == ["one", "two"]


def test_principals_have_stores_of_their_own(nx: nexus.Engine) -> None:
    async def use() -> Any:
        ada, bob = (NexusSessionStore(nx, principal=name) for name in ("ada", "bob"))
        await ada.append(KEY, [entry("a", "one")])
        return await bob.load(KEY), await bob.list_sessions("project"), await ada.list_sessions("project")

    seen, listed, own = asyncio.run(use())
    assert (seen, listed) == (None, [])
    assert len(own) == 1
    (first,) = [found for found in nx.entries(f"ada/{KEY['session_id']}") if found.rows]
    assert first.body["principal"] == "ada"
    nx.ledger.upkeep.erase_principal("ada")
    assert asyncio.run(NexusSessionStore(nx, principal="ada").load(KEY)) is None
    assert not nx.sessions()


def test_the_same_ids_of_two_principals_are_two_sessions(nx: nexus.Engine) -> None:
    async def use() -> None:
        for name in ("ada", "bob", "ada/x", ""):
            store = NexusSessionStore(nx, principal=name)
            await store.append(KEY, [entry("a", f"{name} begins"), entry("b", f"{name} goes on", "a")])
        await NexusSessionStore(nx, principal="bob").append(KEY, [entry("c", "bob follows", "b")])

    asyncio.run(use())
    histories = sorted([message.text() for message in nx.history(info.label)] for info in nx.sessions())
    assert histories == [
        [" begins", " goes on"],
        ["ada begins", "ada goes on"],
        ["ada/x begins", "ada/x goes on"],
        ["bob begins", "bob goes on", "bob follows"],
    ]


def test_hostile_names_stay_in_the_ledger(nx: nexus.Engine, tmp_path: Path) -> None:
    async def use() -> None:
        store = NexusSessionStore(nx)
        for name in ("../../up", "/etc/x", "a" * 400, "\ud800", "\0", "", "a/b%2F"):
            key: SessionKey = {"project_key": name, "session_id": name, "subpath": f"{name}/{name}"}
            await store.append(key, [entry("a", "one")])
            assert await store.load(key) == [entry("a", "one")], name

    before = {*tmp_path.rglob("*")}
    asyncio.run(use())
    assert {*tmp_path.rglob("*")} == before


def test_failed_import_keeps_the_transcript(
    nx: nexus.Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise nexus.LedgerError("disk full")

    async def use() -> Any:
        store = NexusSessionStore(nx)
        await store.append(KEY, [entry("a", "one")])
        return await store.load(KEY)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "nexus.adapters.claude_agent"):
        patched.setattr("nexus.adapters.claude_agent.import_transcript", refuse)
        assert asyncio.run(use()) == [entry("a", "one")]
    assert "disk full" in caplog.text
    asyncio.run(use())
    assert texts_of(nx, KEY["session_id"]) == ["one"]


def append_many(ledger: str, name: str) -> None:
    async def use(nx: nexus.Engine) -> None:
        store = NexusSessionStore(nx)
        for number in range(20):
            await store.append(KEY, [entry(f"{name}{number}", f"{name} {number}")])

    with nexus.open(ledger=ledger) as nx:
        asyncio.run(use(nx))


def test_two_programs_append_to_one_session(nx: nexus.Engine, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=append_many, args=(str(tmp_path / "ledger.db"), name)) for name in ("x", "y")]
    for program in programs:
        program.start()
    for program in programs:
        program.join(120)
    entries: list[Any] = asyncio.run(NexusSessionStore(nx).load(KEY)) or []
    for name in ("x", "y"):
        assert [one["uuid"] for one in entries if one["uuid"][0] == name] == [f"{name}{number}" for number in range(20)]
