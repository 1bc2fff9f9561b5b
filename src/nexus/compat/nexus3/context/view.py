"""The visible messages of a conversation: repaired, in OpenAI's chat format, with times as document 004 prints them.

Times use an injected clock and the user's zone. Without a zone the time is UTC and labeled so: the machine's zone is the
user's only if the program runs on the user's machine, which `timezone="local"` states.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nexus.assembly.fit import repair
from nexus.compat.nexus3 import core
from nexus.compat.nexus3.context.messages import sent_messages
from nexus.compat.nexus3.context.truncation import MOMENT_SOURCE, identify_message_groups, is_complete
from nexus.errors import BadSetting, BadTool
from nexus.ledger.text_encoding import to_json
from nexus.providers.received import as_mapping
from nexus.types.history import SESSION_SOURCE
from nexus.types.message import Message, Note, Text
from nexus.types.sanitize import sanitize_text
from nexus.workspace.environment.machine import HEADING as ENVIRONMENT
from nexus.workspace.times import FRESH_MS, now_text, parse_zone, session_start_text, stamp_text

__all__ = ["chat_messages", "visible_messages"]


def visible_messages(messages: Iterable[Message], *, started: bool = False) -> list[Message]:
    """Return the messages as a provider accepts them; calls without a result are answered as interrupted.

    `started` means that other messages precede them.
    """
    # The rules before late results were shown, which the documented token counts follow.
    fold = repair.Fold(started=started, render=repair.LATE_RESULTS_RENDER - 1)
    out: list[Message] = []
    for message in messages:
        out.extend(view for view, _, _ in repair.step(fold, is_complete(message), plain=False))
    return [*out, *repair.closing_messages(fold)]


def chat_messages(system_prompt: str, messages: Iterable[Message]) -> list[core.Message]:
    """Return the system prompt, if any, and the repaired messages as they are sent."""
    system = [core.Message("system", sanitize_text(system_prompt))] if system_prompt else []
    return [*system, *sent_messages(visible_messages(messages))]


def wants_stamp(messages: Sequence[Message], now_ms: int) -> bool:
    """Return whether a tool loop has all its results and its last time stamp is over five minutes old."""
    if not messages or messages[-1].role != "tool":
        return False
    group = identify_message_groups(messages)[-1]
    call_ids = {call.id for message in group for call in message.calls()}
    answered = {result.call_id for message in group for result in message.results()}
    stamped = [
        message.at_ms
        for message in messages
        if any(isinstance(part, Note) and part.kind == "moment" for part in message.parts)
    ]
    return call_ids <= answered and now_ms - max(stamped, default=0) > FRESH_MS


def plain_definitions(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tool definitions as dicts. Raises BadTool for one that is no mapping or has no JSON form."""
    definitions: list[dict[str, Any]] = []
    for at, tool in enumerate(tools):
        definition = as_mapping(tool)
        if definition is None:
            raise BadTool(f"tool definition {at} invalid: {type(tool).__name__} (give a mapping)")
        try:
            to_json(definition)
        except (TypeError, ValueError) as error:
            raise BadTool(f"tool definition {at} has no JSON form: {error}") from error
        definitions.append(definition)
    return definitions


def system_clock_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def check_zone(timezone: str) -> None:
    """Check a zone: empty (UTC), `local` (the machine's), or a zone that `nexus.open` accepts. Raises BadSetting."""
    _at(0, timezone)


def stamp(at_ms: int, timezone: str) -> str:
    """Return the time to the minute, `2026-01-13 14:30 (local)`; without a zone in UTC: `2026-01-13 13:30 (UTC)`."""
    return stamp_text(*_at(at_ms, timezone))


def moment_line(at_ms: int, timezone: str) -> str:
    """Return `Current date: 2026-01-13, Current time: 14:30 (local)`."""
    return now_text(stamp(at_ms, timezone))


def session_start(at_ms: int, timezone: str) -> Message:
    """Return the first message of a session."""
    text = session_start_text(stamp(at_ms, timezone))
    return Message("user", (Text(text),), at_ms=at_ms, source=SESSION_SOURCE)


def moment(at_ms: int, timezone: str) -> Message:
    """Return a time stamp as a message, for a long tool loop."""
    return Message("user", (Note("moment", moment_line(at_ms, timezone)),), at_ms=at_ms, source=MOMENT_SOURCE)


def with_moment_line(system_prompt: str, line: str) -> str:
    """Insert the time as first line of the prompt's last `# Environment` section, which is added if it is missing."""
    lines = system_prompt.split("\n")
    heads = [at for at, text in enumerate(lines) if text.strip() == ENVIRONMENT]
    if not heads:
        if system_prompt:
            return f"{system_prompt}\n\n{ENVIRONMENT}\n{line}"
        return f"{ENVIRONMENT}\n{line}"
    lines.insert(heads[-1] + 1, line)
    return "\n".join(lines)


def _at(at_ms: int, timezone: str) -> tuple[datetime, str]:
    """Return the time in the zone, without zone information, and the zone's label. Raises BadSetting."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadSetting(f"clock value {at_ms} invalid (return milliseconds since 1970)") from error
    if not timezone:
        return at.replace(tzinfo=None), "UTC"
    try:
        local = at.astimezone(None if timezone == "local" else parse_zone(timezone)[1])
    except OverflowError:  # an hour before the first day of the calendar, or after its last
        return at.replace(tzinfo=None), "UTC"
    except ValueError as error:
        text = f"{error} (give an IANA name, an offset, a browser's minutes, or 'local' for the machine's)"
        raise BadSetting(text) from error
    return local.replace(tzinfo=None), "local"
