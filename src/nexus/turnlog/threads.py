"""Document 001's tools: the model posts to a thread, reads it, and ends its turn. Every call has its reasoning."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

from nexus.engine import Engine
from nexus.tools import ToolRegistry
from nexus.turnlog.entries import POST, LogEntry, entry_text, parse_bare
from nexus.turnlog.write import log_entries, strict_entries

MAX_MESSAGES = 50


def thread_tools(nx: Engine, session: str, post: Callable[[str], Any]) -> ToolRegistry:
    """Return the tools `postMessage`, `getThreadHistory` and `finishRequest` for a session.

    Args:
        nx: The engine with the session.
        session: Label of the session: its messages are the thread's.
        post: Sends a text to the thread's users; it may be a coroutine function. Its errors are the call's result.
    """
    registry = ToolRegistry()

    @registry.tool(name=POST, category="messaging")
    async def post_message(text: str, reasoning: str) -> str:
        """Post a message to the thread. The users see posted messages only.

        Args:
            text: The message.
            reasoning: Why you post it.
        """
        del reasoning  # for the log
        posting = post(text)
        if inspect.isawaitable(posting):
            await posting
        return "posted"

    @registry.tool(name="getThreadHistory", category="messaging", repeatable=True)
    def get_thread_history(reasoning: str, ascending: bool = True, limit: int = MAX_MESSAGES) -> str:  # noqa: FBT002 - a model's arguments
        """Read the newest messages of the thread: the users' and the posted ones, a JSON object a line.

        Args:
            reasoning: Why you read them.
            ascending: Oldest first; false for newest first.
            limit: Number of messages.
        """
        del reasoning  # for the log
        log = strict_entries(log_entries(nx.ledger.iter_entries(session)), Counter())
        messages = [entry_text(entry) for entry in log if _is_message(entry)][-max(limit, 1) :]
        return "\n".join(messages if ascending else reversed(messages))

    @registry.tool(name="finishRequest", category="messaging", repeatable=True, ends_turn=True)
    def finish_request(reasoning: str) -> str:
        """End your work on the request. Post your answer first.

        Args:
            reasoning: Why the request is done.
        """
        del reasoning  # for the log
        return "finished"

    return registry


def _is_message(entry: LogEntry) -> bool:
    if entry.role != "assistant":
        return entry.role == "user"
    return parse_bare("assistant", entry.content).tool in ("", POST)
