"""A clock that is moved by hand, and conversations as the steps that make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nexus.compat.nexus3.context import ContextConfig, ContextManager, SimpleTokenCounter
from nexus.compat.nexus3.context.messages import stored_messages
from support.validity import check_openai

AT = 1_768_314_600_000
"""2026-01-13 14:30 in UTC."""

ENDS_WITH_ASSISTANT = "messages: the last message must be a user's or a tool's, is assistant"


@dataclass
class Clock:
    """The time in milliseconds, moved by hand."""

    now_ms: int = AT

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, minutes: float) -> None:
        self.now_ms += int(minutes * 60_000)


@dataclass
class Listener:
    """A logger of somebody's own: what it was told, in order."""

    told: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def log_system(self, content: str) -> None:
        self.told.append(("system", content))

    def log_user(self, content: str) -> None:
        self.told.append(("user", content))

    def log_assistant(self, content: str, tool_calls: Any = ()) -> None:
        self.told.append(("assistant", content, tuple(call.name for call in tool_calls)))

    def log_tool_result(self, tool_call_id: str, name: str, result: Any) -> None:
        self.told.append(("tool", tool_call_id, name, result.output))


def manager(max_tokens: int = 8_000, reserve_tokens: int = 2_000, strategy: str = "oldest_first", **more: Any) -> Any:
    """A manager with the simple counter and without stamps, so that sizes are plain."""
    config = ContextConfig(max_tokens, reserve_tokens, strategy)
    given = {"token_counter": SimpleTokenCounter(), "clock": "system", "clock_ms": Clock(), **more}
    return ContextManager(config, **given)


def call(call_id: str, name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def texts(messages: list[Any]) -> list[str]:
    """What each of some messages says: its text, `name?` for a call, `!text` for a result."""
    said: list[str] = []
    for message in stored_messages(messages):
        said += [message.text()] if message.text() else []
        said += [f"{one.name}?" for one in message.calls()]
        said += [f"!{one.content[0].text}" for one in message.results()]
    return said


def problems(body: list[dict[str, Any]]) -> list[str]:
    """What an independent judge of OpenAI bodies finds, but for who spoke last: that is the caller's choice."""
    found = check_openai({"model": "gpt-4o", "messages": body})
    return [problem for problem in found if problem != ENDS_WITH_ASSISTANT]
