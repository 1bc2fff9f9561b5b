"""Workspaces for the tests of the command line: an empty one, and one with the example session in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from cli.chatting import MODEL, PROMPT, Start
from cli.running import Ran, run, write_json
from cli.terminal import Terminal
from nexus.testing.model_server import ModelServer, model_server, reply

EXAMPLES = Path(__file__).parents[2] / "examples"
Nexus: TypeAlias = Callable[..., Ran]

TALK = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Which index?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"notes.md"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "GIN for the body"},
    {"role": "assistant", "content": "GIN."},
]


@pytest.fixture(scope="session")
def example_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's workspace with its session imported as `main`. Copy it; never write into it."""
    folder = tmp_path_factory.mktemp("example") / "agent"
    shutil.copytree(EXAMPLES / "agent", folder, ignore=shutil.ignore_patterns(".nexus"))
    assert run("import", EXAMPLES / "session.json", "--session", "main", "-w", folder, folder=folder).code == 0
    return folder


@pytest.fixture
def example(example_workspace: Path, tmp_path: Path) -> Path:
    """A copy of the example's workspace, to do with as one likes."""
    return Path(shutil.copytree(example_workspace, tmp_path / "agent"))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A workspace without files, with an empty ledger."""
    folder = tmp_path / "empty"
    (folder / ".nexus").mkdir(parents=True)
    return folder


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A small session file in OpenAI's form: system, user, a call, its result, an answer."""
    return write_json(tmp_path / "talk.json", {"messages": TALK})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server(reply("Good morning.")) as running:
        yield running


@pytest.fixture
def chat(empty: Path, server: ModelServer) -> Iterator[Start]:
    """Starts chats with the scripted server; each is ready for its first message."""
    started: list[Terminal] = []

    def start(*args: str | Path, ready: str = PROMPT, env: dict[str, str] | None = None) -> Terminal:
        options = ("--base-url", server.openai_url, "-m", MODEL)
        started.append(Terminal("chat", *options, *args, folder=empty, env=env))
        started[-1].wait_for(ready)
        return started[-1]

    yield start
    for one in started:
        if one.code is None:
            one.kill()
