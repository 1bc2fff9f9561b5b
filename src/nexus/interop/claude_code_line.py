"""One message line of a Claude Code session file, apart from its place in the conversation.

Of a line, `message` and its time are taken over, and into `meta` what says something about the message. The fields
outside `TAKEN` (the tool's own record of its result, above all) are not: the reader counts them.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply
from nexus.providers import anthropic
from nexus.providers.received import Calls, compact_json, mapping, text_of, with_meta
from nexus.types.message import Message
from nexus.types.request import TokenUsage

SYNTHETIC = "<synthetic>"
"""The model of messages that the tool wrote itself, such as notices of API errors."""

ABOUT = ("cwd", "version", "gitBranch", "slug")
"""Fields on every line that say something about the session; the last value counts."""

_INTERRUPTED = "[Request interrupted by user"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_META = ("isMeta", "isApiErrorMessage", "apiError", "error", "requestId", "agentId", "forkedFrom", "permissionMode")

TAKEN = frozenset(
    {"type", "uuid", "parentUuid", "logicalParentUuid", "message", "timestamp", "isSidechain", "isCompactSummary"}
    | {"sessionId", "userType", *ABOUT, *_IN_META}
)
"""The fields of a message line that are taken over or that say nothing more."""


def messages_of(record: dict[str, Any], kind: str, key: str, calls: Calls) -> tuple[Message, ...]:
    """The line's messages with id, time, source and meta; at least one. Raises BadReply when it holds none.

    An assistant's message keeps its own id, which its other lines share; a user's has the line's.
    """
    body = mapping(record.get("message"))
    if not body:
        raise BadReply("not a message: 'message' missing")
    own = {name: value for name, value in body.items() if name not in ("usage", "stop_reason")}
    found = anthropic.message({**own, "role": kind}, calls)
    said = {name: record[name] for name in _IN_META if record.get(name)}
    if body.get("model") == SYNTHETIC:
        said["synthetic"] = True
    if kind == "assistant" and body.get("stop_reason"):
        said["stop_reason"] = body["stop_reason"]
    at_ms = _milliseconds(record.get("timestamp"))
    ids = (found[0].id or key,) if kind == "assistant" else (key, f"{key}:rest")
    return tuple(
        replace(
            message,
            id=own_id,
            at_ms=at_ms,
            source=_source(record, message) if message.role == "user" else "",
            meta=with_meta(message.meta, said),
        )
        for message, own_id in zip(found, ids, strict=False)
    )


def usage_of(record: dict[str, Any]) -> TokenUsage | None:
    """What the provider reported for the message's model call; None where no model was called."""
    body = mapping(record.get("message"))
    if body.get("model") == SYNTHETIC or not body.get("usage"):
        return None
    return anthropic.usage(body["usage"])


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits that stand for a JSON value."""
    return hashlib.sha256(compact_json(value).encode(errors="surrogatepass")).hexdigest()[:16]


def _source(record: dict[str, Any], message: Message) -> str:
    if record.get("isMeta") is True:
        return "hook"
    if message.text().startswith(_INTERRUPTED):
        return "interrupt"
    return "agent" if record.get("isSidechain") is True else "human"


def _milliseconds(value: Any) -> int:
    """Unix time of an ISO 8601 timestamp (UTC where it names no zone), 0 if it is none."""
    try:
        time = datetime.fromisoformat(text_of(value))
        zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
        return max(0, (zoned - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        return 0
