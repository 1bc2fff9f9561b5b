"""Messages that a user typed while Claude Code's agent was working.

They are queued (`enqueue`) and leave the queue in one of three ways: at the end of the turn (`dequeue`, usually followed
by a user line with the text), inside the turn (`remove`, usually without such a line), or back into the input field
(`popAll`). Only the first two reach the model. A message that has a line of its own is not read twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from nexus.providers.received import items_of, mapping, text_of

ABSORBED = "absorbed_mid_turn"
"""Reason of a `remove` that gave the message to the model. Older versions write no reason."""

_NOT_TYPED = "<task-notification>"


@dataclass(slots=True)
class QueuedMessage:
    """A queued message: its line, and what became of it so far."""

    line: int
    record: dict[str, Any]
    has_line: bool = False
    """Another line of the file has the same text."""
    is_sent: bool = False

    @property
    def text(self) -> str:
        """The message's text."""
        return content_text(self.record.get("content"))

    @property
    def event(self) -> dict[str, Any]:
        """The message as an event with a user's message."""
        return user_event(self.record, self.record.get("content"))


@dataclass(slots=True)
class MessageQueue:
    """The queue at one point of the file."""

    waiting: list[QueuedMessage] = field(default_factory=list[QueuedMessage])

    def apply(self, line: int, record: dict[str, Any]) -> None:
        """Apply a line of kind `queue-operation`."""
        operation = text_of(record.get("operation"))
        text = content_text(record.get("content"))
        queued = [message for message in self.waiting if not message.is_sent]
        if operation == "enqueue":
            if text or items_of(record.get("content")):
                self.waiting.append(QueuedMessage(line, record))
        elif operation == "popAll":
            self.waiting = [message for message in self.waiting if message.is_sent]
        elif operation in ("dequeue", "remove") and queued:
            first = next((message for message in queued if text and message.text == text), queued[0])
            if operation == "remove" and text_of(record.get("reason")) not in ("", ABSORBED):
                self.waiting.remove(first)
            first.is_sent = True

    def note_line(self, text: str) -> None:
        """Note that a message of the file has this text."""
        for message in self.waiting:
            if not message.has_line and _contains(text, message.text):
                message.has_line = True
                return

    def take_sent(self) -> list[QueuedMessage]:
        """Remove the messages that were sent, and return those without a line of their own."""
        messages = [message for message in self.waiting if message.is_sent and not message.has_line]
        self.waiting = [message for message in self.waiting if not message.is_sent]
        return messages


def user_event(record: dict[str, Any], content: Any) -> dict[str, Any]:
    """Return the event of a user's message with the content, text or parts, that another line has."""
    parts = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items_of(content)]
    event = {**record, "message": {"role": "user", "content": parts or content}}
    if content_text(content).startswith(_NOT_TYPED):
        event["isMeta"] = True
    return event


def content_text(content: Any) -> str:
    """Return the text of a message's content, which is text or a list of parts."""
    if isinstance(content, str):
        return content
    return "\n".join(
        item if isinstance(item, str) else text_of(mapping(item).get("text")) for item in items_of(content)
    )


def _contains(text: str, queued: str) -> bool:
    """Return true if a text has a queued message as complete lines or between tags, as commands are written."""
    words = queued.strip()
    if words.startswith("/"):
        command = words.split()[0]
        if f"<command-name>{command}<" in text:
            words = command
    return bool(words) and re.search(rf"(?:^|[\n>])\s*{re.escape(words)}\s*(?:$|[\n<])", text) is not None
