"""The whole context of the profile `workspace` for one rich workspace and session, as document 003 has it.

The expected texts are typed, not generated. Their order is that of "build_system_prompt" and "build_messages"; the
metadata are those of "Runtime Context" with the true weekday, the list with an image that of "Image Support".
"""

from __future__ import annotations

import base64
import dataclasses
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run
from nexus.compat.nanobot.agent import ContextBuilder
from nexus.compat.nanobot.session.manager import SessionManager
from nexus.engine import Engine
from nexus.types.message import Image, Text, ToolCall
from nexus.types.request import Event
from support.skills import SHELL
from support.validity import CHECKS
from workspace.skills.making import READ_FILE

HERE = Path(__file__).parent
ASKED, NOW = (int(datetime(2026, 3, 6, 22, minute, tzinfo=UTC).timestamp() * 1000) for minute in (28, 30))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALL = {"id": "call_123", "type": "function", "function": {"name": "list_dir", "arguments": '{"path": "docs"}'}}
MESSAGES: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": (
            "[Runtime Context — metadata only, not instructions]\n"
            "Current Time: 2026-03-06 14:28 (Friday)\n"
            "Timezone: PST\n"
            "Channel: telegram\n"
            "Chat ID: 12345\n"
            "\n"
            "List files"
        ),
    },
    {"role": "assistant", "content": "I'll list the files in the current directory.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_123", "content": "opening-hours.md"},
    {"role": "assistant", "content": "There is one: opening-hours.md."},
    {
        "role": "user",
        "content": [
            {
                "type": "text",
                "text": (
                    "[Runtime Context — metadata only, not instructions]\n"
                    "Current Time: 2026-03-06 14:30 (Friday)\n"
                    "Timezone: PST\n"
                    "Channel: telegram\n"
                    "Chat ID: 12345"
                ),
            },
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            {"type": "text", "text": "What's in this image?"},
        ],
    },
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NEWS_API_KEY", "NEXUS_MODEL", "NEXUS_TIMEZONE", "NEXUS_PERSONA"):
        monkeypatch.delenv(name, raising=False)
    place = Path(shutil.copytree(HERE / "workspace", tmp_path / "ws"))
    (place / "USER.md").write_text("Ann runs the desk on weekdays.\n", "utf-8")
    (place / "shot.png").write_bytes(base64.b64decode(PIXEL))
    return place


def expected(root: Path, name: str) -> str:
    return (HERE / "expected" / f"{name}.txt").read_text("utf-8").removesuffix("\n").replace("WORKSPACE", str(root))


def opened(root: Path, now: int = NOW) -> Engine:
    nx = nexus.open(root, clock_ms=lambda: now, timezone="America/Los_Angeles")
    nx.preparation.workspace_context = dataclasses.replace(
        nx.workspace_context, host={"Host": "desk", "OS": "linux", "Arch": "arm64"}
    )
    return nx


def assembled(nx: Engine, event: Event, **options: Any) -> nexus.AssembledContext:
    given: dict[str, Any] = {"tools": [READ_FILE, *SHELL], "model": "gpt-4o", "skills": ["slack"], **options}
    return nx.assemble(event, profile="workspace", session="telegram:12345", **given)


def happened(*content: Text | Image) -> Event:
    return Event(content, channel="telegram", chat_id="12345")


def whole(root: Path) -> nexus.AssembledContext:
    """The context after the session's first turn, for a message with an image."""
    call = ToolCall("call_123", "list_dir", '{"path": "docs"}')
    with opened(root, ASKED) as nx:
        first = assembled(nx, happened(Text("List files")))
        said = nexus.assistant("I'll list the files in the current directory.", call)
        nx.record(first, nexus.AgentResult((said,)))
        second = assembled(nx, Event(results=(nexus.tool("call_123", "opening-hours.md", "list_dir"),)))
        nx.record(second, nexus.AgentResult((nexus.assistant("There is one: opening-hours.md."),)))
    with opened(root) as nx:
        return assembled(nx, happened(Text("What's in this image?"), Image("image/png", PIXEL, width=1, height=1)))


def test_the_whole_context_is_the_documents(root: Path) -> None:
    """Document 003: "System prompt includes", then the history in real roles, then metadata, image and text."""
    body = whole(root).to_openai()
    assert body["messages"][0] == {"role": "system", "content": expected(root, "workspace_system")}
    assert body["messages"][1:] == MESSAGES


@pytest.mark.parametrize("wire", sorted(CHECKS))
def test_every_provider_takes_the_context(root: Path, wire: str) -> None:
    """Decided: "Every profile's output validates on all wires"; judged by the official packages' types."""
    models = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
    whole(root)
    with opened(root) as nx:
        event = happened(Text("What's in this image?"), Image("image/png", PIXEL, width=1, height=1))
        ctx = assembled(nx, event, model=models.get(wire, "gpt-4o"))
    assert CHECKS[wire](getattr(ctx, f"to_{wire}")()) == []


def test_the_documents_builder_makes_the_same_messages(root: Path) -> None:
    """Decided: the documented builders are doors on one core."""
    body = whole(root).to_openai()
    context = ContextBuilder(root, timezone="America/Los_Angeles", clock_ms=lambda: NOW, tools=[READ_FILE, *SHELL])
    with SessionManager(root) as sessions:
        history = sessions.get_or_create("telegram:12345").get_history()
    messages = context.build_messages(
        history, "What's in this image?", ["slack"], [str(root / "shot.png")], "telegram", "12345"
    )
    assert messages[3].pop("name") == "list_dir"  # which a history has, and OpenAI's types lack
    assert messages[1:] == body["messages"][1:] == MESSAGES
    places, shown = (text.index("\n## Places") for text in (messages[0]["content"], body["messages"][0]["content"]))
    assert messages[0]["content"][places:] == body["messages"][0]["content"][shown:]


def test_the_command_line_makes_the_same_messages(root: Path, tmp_path: Path) -> None:
    """`nexus assemble … --profile workspace`, with the channel and the chat."""
    whole(root)
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([READ_FILE, *SHELL]), "utf-8")
    done = run(
        "assemble", "What's in this image?", "--profile", "workspace", "--session", "telegram:12345",
        "--channel", "telegram", "--chat-id", "12345", "--at", "2026-03-06T14:30:00-08:00",
        "--timezone", "America/Los_Angeles", "--image", str(root / "shot.png"), "--model", "gpt-4o",
        "--tools", str(tools), "--skill", "slack", "--as", "openai", "-w", str(root), folder=tmp_path,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    messages = json.loads(done.out)["messages"]
    assert messages[1:] == MESSAGES
    system = expected(root, "workspace_system")
    assert messages[0]["content"].partition("\n## Places")[2] == system.partition("\n## Places")[2]
