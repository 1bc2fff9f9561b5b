"""Events of Claude Code's session files for the tests, and transcripts as words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from nexus.interop import claude_code
from nexus.interop.transcript import Step, Transcript
from nexus.types.message import Message, Text

Event = dict[str, Any]


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> Event:
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"role": "user", "content": content}, **more}


def said(uuid: str, parent: str | None, message_id: str, *blocks: Event, **more: Any) -> Event:
    body = {"id": message_id, "role": "assistant", "model": "model-1", "content": list(blocks), **more}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": body}


def text(words: str) -> Event:
    return {"type": "text", "text": words}


def call(call_id: str, **arguments: Any) -> Event:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": arguments}


def result(call_id: str, words: Any) -> Event:
    return {"type": "tool_result", "tool_use_id": call_id, "content": words}


def lines(*events: Event) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def read(path: Path, *events: Event, data: bytes | None = None) -> Transcript:
    file = path / "session.jsonl"
    file.write_bytes(lines(*events) if data is None else data)
    (transcript,) = claude_code.read(file)
    assert sum(transcript.report.counted.values()) + transcript.report.message_lines == transcript.report.lines
    return transcript


def shown(steps: tuple[Step, ...]) -> list[str]:
    """The steps, each as one word per message: its text, its calls as `?id`, its results as `!id`."""
    return [" ".join(_word(message) for message in step.messages) or step.kind for step in steps]


def _word(message: Message) -> str:
    calls = [f"?{one.id}" for one in message.calls()] + [f"!{one.call_id}" for one in message.results()]
    return "+".join([part.text for part in message.parts if isinstance(part, Text)] + calls)


def data_of(event: Event) -> Event:
    value: Any = event.get("data")
    return cast("Event", value) if isinstance(value, dict) else {}


def queued(events: Iterable[Event]) -> Iterator[Event]:
    """Messages that were typed while the agent worked and taken out of the queue: in the real files none has a line."""
    waiting: list[Event] = []
    for event in events:
        if event["type"] == "queue-operation" and event["operation"] == "enqueue":
            waiting.append(event)
        elif event["type"] == "queue-operation":
            yield {"type": "user", "message": {"role": "user", "content": waiting.pop(0)["content"]}}


def is_notice(event: Event) -> bool:
    """Whether a line is the tool's own notice in the place of the model's words."""
    return event["type"] == "assistant" and event["message"]["model"] == "<synthetic>"


def spoken_events(events: Iterable[Event]) -> Iterator[Event]:
    """All events with a message: lines, queued messages, and sub-agents' with texts that have no line (`unlined`)."""
    ids: set[str] = set()
    every = [event for event in events if not is_notice(event)]
    for event in every:
        if event["type"] in ("user", "assistant"):
            yield event
        data = data_of(event)
        if data.get("type") == "agent_progress":
            ids.add(data["message"]["uuid"])
            for other in data["normalizedMessages"]:
                if other["uuid"] not in ids and "message" in other:
                    ids.add(other["uuid"])
                    yield {**other, "unlined": True}
            yield data["message"]
    yield from queued(every)
