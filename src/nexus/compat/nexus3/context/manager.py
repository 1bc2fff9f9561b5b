"""The context manager of document 004: system prompt, tools and messages of one conversation, within a token budget.

`messages` is a view. As documented, `build_messages` reduces it to the messages that are sent and fills the budget
again in each call. The ledger behind it keeps everything; it is in memory unless a logger for another one is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context.compaction import count_group, stored_summary, summary_text
from nexus.compat.nexus3.context.logger import LedgerLogger, MessageLogger, system_prompt, tell
from nexus.compat.nexus3.context.messages import (
    AnyMessage,
    calls_of,
    result_message,
    shown_messages,
    stored_messages,
)
from nexus.compat.nexus3.context.token_counter import TokenCounter, get_token_counter
from nexus.compat.nexus3.context.truncation import STRATEGIES, flatten_groups, identify_message_groups
from nexus.compat.nexus3.context.view import (
    chat_messages,
    check_zone,
    moment,
    moment_line,
    plain_definitions,
    session_start,
    system_clock_ms,
    wants_stamp,
    with_moment_line,
)
from nexus.errors import BadSetting
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.text_encoding import to_json
from nexus.types.message import Message, Note, Text, ToolResult

__all__ = ["ContextConfig", "ContextManager"]


@dataclass(slots=True)
class ContextConfig:
    """Token budget and truncation strategy. Raises BadSetting, also for a field that is set later."""

    max_tokens: int = 8000
    reserve_tokens: int = 2000
    truncation_strategy: str = "oldest_first"

    def __setattr__(self, name: str, value: object) -> None:
        if name == "truncation_strategy":
            if value not in tuple(STRATEGIES):
                raise BadSetting(f"truncation strategy {value!r} unknown (choose {' or '.join(STRATEGIES)})")
        elif not isinstance(value, int) or value < 0:
            raise BadSetting(f"{name} invalid: {value!r} (give a whole number of tokens, 0 or more)", code="bad_budget")
        object.__setattr__(self, name, value)


class ContextManager:
    """One conversation for a model. A `LedgerLogger` of an existing session continues that session.

    Args:
        config: Token budget and truncation strategy.
        token_counter: By default an exact one, if available.
        logger: A `LedgerLogger`, or another logger that is called for each step.
        clock: Where the time is shown. `message`: each user message is stamped when it is added, and keeps its stamp.
            `system`: the documented line under `# Environment`, renewed in each call, which breaks the prompt cache.
        timezone: The user's: an IANA name, an offset, a browser's minutes as text, `local` for the machine's, empty for UTC.
        clock_ms: Returns the time in milliseconds since 1970.

    Attributes:
        log: The logger of the ledger with all messages.

    Raises:
        BadSetting: `clock` or `timezone` is invalid.
    """

    def __init__(
        self,
        config: ContextConfig | None = None,
        token_counter: TokenCounter | None = None,
        logger: MessageLogger | None = None,
        *,
        clock: Literal["message", "system"] = "message",
        timezone: str = "",
        clock_ms: Callable[[], int] = system_clock_ms,
    ) -> None:
        if clock not in ("message", "system"):
            raise BadSetting(f"clock {clock!r} unknown (choose message or system)")
        check_zone(timezone)
        self.config = config or ContextConfig()
        self.token_counter = token_counter or get_token_counter()
        self.clock = clock
        self.timezone = timezone
        self.clock_ms = clock_ms
        if isinstance(logger, LedgerLogger):
            self.log = logger
        else:
            self.log = LedgerLogger(SqliteLedger(":memory:", clock_ms=clock_ms), for_agent=True)
        if isinstance(logger, LedgerLogger):
            self._listener = None
        else:
            self._listener = logger
        restored = self.log.restore(timezone)
        self._is_begun = restored.is_begun
        if self._is_begun:
            self._start = restored.start
        else:
            self._start = (session_start(clock_ms(), timezone),)
        self._messages = list(restored.messages)
        self._system_prompt = restored.system_prompt
        self._tools: list[dict[str, Any]] = []
        self._count = lru_cache(maxsize=4096)(partial(count_group, self.token_counter))

    @property
    def system_prompt(self) -> str:
        """The system prompt without a time."""
        return self._system_prompt

    @property
    def messages(self) -> list[core.Message]:
        """All messages in view, as a copy; after `build_messages` those that were sent."""
        return shown_messages([*self._start, *self._messages])

    def set_system_prompt(self, prompt: str) -> None:
        """Set the system prompt, and log it if it changed."""
        if prompt == self._system_prompt:
            return
        self._store(system_prompt(prompt, self.clock_ms()))
        self._system_prompt = prompt

    def set_tool_definitions(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Set the definitions of the tools that the model may call. Raises BadTool."""
        self._tools = plain_definitions(tools)

    def get_tool_definitions(self) -> list[dict[str, Any]]:
        """Return the tool definitions for the call, unchanged."""
        return [dict(tool) for tool in self._tools]

    def add_user_message(self, content: str) -> None:
        """Add a user's message, preceded by the time if `clock` is `message`."""
        now = self.clock_ms()
        notes = (Note("moment", moment_line(now, self.timezone)),) if self.clock == "message" else ()
        self._add(Message("user", (*notes, Text(content)), at_ms=now))

    def add_assistant_message(self, content: str | None, tool_calls: Iterable[object] | None = None) -> None:
        """Add the model's reply: its text, and its tool calls in Nexus's or OpenAI's form or as a client's objects.

        Raises BadReply for an invalid tool call.
        """
        text = (Text(content),) if content else ()
        self._add(Message("assistant", (*text, *calls_of(tool_calls or ())), at_ms=self.clock_ms()))

    def add_tool_result(self, tool_call_id: str, name: str, result: str | core.ToolResult | ToolResult) -> None:
        """Add a tool's result. A value of another type becomes JSON text."""
        self._add(result_message(tool_call_id, name, result, self.clock_ms()))

    def reload(self, after: int | None = None) -> None:
        """Read the messages again, after an agent has run a turn of the session.

        Another logger is called for the messages behind the position `after`.
        """
        self._messages = list(self.log.messages_in_view(self.timezone))
        if self._listener is not None and after is not None:
            for message in self.log.history(after):
                tell(self._listener, message)

    def clear_messages(self) -> None:
        """Remove all messages from view. System prompt, tools and the session's first line stay."""
        self.begin()
        self.log.clear(self.clock_ms())
        self._messages = []

    def apply_compaction(
        self,
        summary_message: AnyMessage,
        preserved_messages: Sequence[AnyMessage],
        new_system_prompt: str | None = None,
    ) -> None:
        """Replace all messages after the session's first line by the summary and the preserved messages.

        The summary follows the documented heading with its time in the user's zone, in whatever message it is passed.
        """
        self.begin()
        (message,) = stored_messages([summary_message])
        summary = stored_summary(summary_text(message), message.at_ms or self.clock_ms(), self.timezone)
        preserved = [message for message in stored_messages(preserved_messages) if message not in self._start]
        before = self._tokens(self._messages)
        after = self._tokens([summary, *preserved])
        if self._listener is not None:
            self._listener.log_user(summary.text())
        self.log.compact(summary, preserved, before, after)
        self._messages = [summary, *preserved]
        if new_system_prompt is not None:
            self.set_system_prompt(new_system_prompt)

    def build_messages(self) -> list[core.Message]:
        """Return the messages of the next call in OpenAI's chat format, truncated if they exceed the budget.

        They are always valid: calls without a result are answered as interrupted, here but not in `messages`.
        """
        self.begin()
        now = self.clock_ms()
        if self.clock == "message" and wants_stamp(self._messages, now):
            line = moment(now, self.timezone)
            # The newest group always stays, so the stamp must fit beside it: nothing else could make room for it.
            if self._count((*identify_message_groups(self._messages)[-1], line)) <= self._budget_for_messages():
                self._add(line)
        return chat_messages(self.sent_system_prompt(), stored_messages(self._get_context_messages()))

    def _get_context_messages(self) -> list[core.Message]:
        """Return the messages that fit. What one call omits, later calls omit (document 004)."""
        if self.is_over_budget():
            middle_out = self.config.truncation_strategy == "middle_out"
            if middle_out:
                truncated = self._truncate_middle_out()
            else:
                truncated = self._truncate_oldest_first()
            self._messages = stored_messages(truncated)[len(self._start) :]
        return self.messages

    def _identify_message_groups(self) -> list[tuple[core.Message, ...]]:
        """Return the messages in view as groups, without the session's first line."""
        return identify_message_groups(shown_messages(self._messages))

    def _count_group_tokens(self, group: Iterable[AnyMessage]) -> int:
        """Return the tokens of a group as it is sent."""
        return self._count(tuple(stored_messages(group)))

    def _flatten_groups(self, groups: Iterable[Iterable[core.Message]]) -> list[core.Message]:
        """Return all messages of the groups, in order."""
        return flatten_groups(groups)

    def _truncate_oldest_first(self) -> list[core.Message]:
        """Return the newest groups that fit, after the session's first line."""
        return self._truncated("oldest_first")

    def _truncate_middle_out(self) -> list[core.Message]:
        """Return the first group, the newest that fit and the last, after the session's first line."""
        return self._truncated("middle_out")

    def _truncated(self, strategy: str) -> list[core.Message]:
        groups = self._identify_message_groups()
        groups = STRATEGIES[strategy](groups, self._budget_for_messages(), self._count_group_tokens)
        return [*shown_messages(self._start), *self._flatten_groups(groups)]

    def _budget_for_messages(self) -> int:
        usage = self.get_token_usage()
        return usage["available"] - usage["system"] - usage["tools"] - self._tokens(self._start)

    def get_token_usage(self) -> dict[str, int]:
        """Return the tokens of `system`, `tools`, `messages`, their `total`, the `budget`, and its `available` part."""
        system = self.token_counter.count(self.sent_system_prompt())
        tools = 0
        if self._tools:
            tools = self.token_counter.count(to_json(self._tools))
        messages = self._tokens(self._start) + self._tokens(self._messages)
        return {
            "system": system,
            "tools": tools,
            "messages": messages,
            "total": system + tools + messages,
            "budget": self.config.max_tokens,
            "available": self.config.max_tokens - self.config.reserve_tokens,
        }

    def is_over_budget(self) -> bool:
        """Return whether the total exceeds the available tokens."""
        usage = self.get_token_usage()
        return usage["total"] > usage["available"]

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum(map(self._count, identify_message_groups(messages)))

    def sent_system_prompt(self) -> str:
        """Return the system prompt of the next call, with the time if `clock` is `system`."""
        if self.clock != "system":
            return self._system_prompt
        return with_moment_line(self._system_prompt, moment_line(self.clock_ms(), self.timezone))

    def begin(self) -> None:
        """Store the session's first line, once. Methods that add messages do so themselves."""
        if not self._is_begun:
            self._store(self._start[0])
            self._is_begun = True

    def _add(self, message: Message) -> None:
        self.begin()
        self._store(message)
        self._messages.append(message)

    def _store(self, message: Message) -> None:
        """Pass a message to another logger, then store it; an error leaves the view unchanged."""
        if self._listener is not None:
            tell(self._listener, message)
        self.log.append(message)
