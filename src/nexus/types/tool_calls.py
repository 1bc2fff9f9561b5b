"""Tool calls with their results, as an agent's result has them (document 002)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nexus.types.message import Message, Text, ToolResult

CallStatus: TypeAlias = Literal["pending", "completed", "failed", "interrupted"]


class ToolCallRecord(Struct, frozen=True):
    """A tool call and what came of it."""

    id: str
    name: str
    arguments: str
    """JSON text as the model wrote it."""
    status: CallStatus = "pending"
    """`interrupted`: its turn ended without a result."""
    result: ToolResult | None = None
    asked_ms: int = 0
    """Unix time of the call's message; 0 if unknown, as for `answered_ms`."""
    answered_ms: int = 0

    @property
    def error(self) -> str:
        """The text of a failed call's result; empty for others."""
        content = self.result.content if self.result is not None and self.status == "failed" else ()
        return "\n".join(part.text for part in content if isinstance(part, Text))


def tool_call_records(messages: Iterable[Message], *, is_over: bool = False) -> tuple[ToolCallRecord, ...]:
    """Return the tool calls of messages in order, with their results. An id that is used again is another call.

    With `is_over`, calls without a result are `interrupted`.
    """
    records: list[ToolCallRecord] = []
    waiting: dict[str, int] = {}
    for message in messages:
        for call in message.calls():
            waiting[call.id] = len(records)
            records.append(ToolCallRecord(call.id, call.name, call.arguments, asked_ms=message.at_ms))
        for result in message.results():
            index = waiting.pop(result.call_id, None)
            if index is not None:
                status: CallStatus = "failed" if result.is_error else "completed"
                records[index] = replace(records[index], status=status, result=result, answered_ms=message.at_ms)
    for index in waiting.values() if is_over else ():
        records[index] = replace(records[index], status="interrupted")
    return tuple(records)
