"""The real sessions that benchmarks replay, as the model calls that were made in them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from benchmarks.report import NotRun
from nexus.interop.detect import read
from nexus.interop.transcript import Step, Transcript
from nexus.types.message import Message, assistant, user
from nexus.types.request import Event

ROOT = Path(__file__).resolve().parent.parent


class Call(Struct, frozen=True):
    """One model call of a session: the event that led to it, and the messages with which the model answered."""

    event: Event
    reply: tuple[Message, ...]


class Session(Struct, frozen=True):
    """A file's name and the calls of its main conversation, in order."""

    name: str
    calls: tuple[Call, ...]


def data_folder() -> Path:
    """The folder of the real sessions, whether or not it is there."""
    return Path(os.environ.get("NEXUS_DATA") or ROOT.parent / "shared" / "data")


def session_files() -> list[Path]:
    """The Claude Code session files. Raises NotRun when the data is missing."""
    folder = data_folder() / "claude_code"
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise NotRun(f"no session files in {folder}: NEXUS_DATA names the folder above claude_code/")
    return files


def long_sessions() -> list[Session]:
    """The longest conversation of each file of long Claude Code sessions. An empty reply is a full stop."""
    folder = data_folder() / "claude_code_long"
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise NotRun(f"no session files in {folder}: NEXUS_DATA names the folder above claude_code_long/")
    longest = (max(read(path), key=lambda transcript: len(transcript.steps)) for path in files)
    return [
        Session(path.stem, tuple(_with_reply(call) for call in calls_of(transcript.steps)))
        for path, transcript in zip(files, longest, strict=True)
    ]


def _with_reply(call: Call) -> Call:
    return call if any(message.has_content() for message in call.reply) else Call(call.event, (assistant("."),))


def transcripts() -> list[tuple[str, Transcript]]:
    """Every file's name and main conversation."""
    return [(path.stem, next(iter(read(path)))) for path in session_files()]


def sessions() -> list[Session]:
    """Every file as the calls that were made in it."""
    return [Session(name, calls_of(transcript.steps)) for name, transcript in transcripts()]


def calls_of(steps: Iterable[Step]) -> tuple[Call, ...]:
    """The calls of one conversation: one wherever the model answered.

    The event is all that came since its last answer: the user's texts, or the results of a whole batch of tools (with
    what the user said meanwhile). The file's own compaction and clearing cut nothing here: the conversation goes on,
    with the summary as a user's message. Results that answer no call are left out.
    """
    calls: list[Call] = []
    pending: list[Message] = []
    asked: set[str] = set()
    for message in (message for step in steps for message in _messages(step)):
        if message.role != "assistant":
            if not any(True for _ in message.results()) or any(r.call_id in asked for r in message.results()):
                pending.append(message)
            continue
        asked.update(call.id for call in message.calls())
        if pending:
            calls.append(Call(_event(pending), (message,)))
            pending = []
        elif calls:
            calls[-1] = Call(calls[-1].event, (*calls[-1].reply, message))
    return tuple(calls)


def _messages(step: Step) -> tuple[Message, ...]:
    return (user(step.summary, at_ms=step.at_ms),) if step.kind == "compaction" else step.messages


def _event(messages: list[Message]) -> Event:
    at_ms = messages[-1].at_ms
    if any(message.role == "tool" for message in messages):
        return Event(results=tuple(messages), at_ms=at_ms)
    return Event(content=tuple(part for message in messages for part in message.parts), at_ms=at_ms)
