"""A turn log that grows while an agent runs: one more entry in a file, and on a console, with each step.

The log is written from the ledger, in the printed form of document 001. Only its system entries are not there: they are
the prompts that were sent, the first one and each that differs from the last. An entry is one write over the array's
end, so the file is a whole array between two writes. A program that was killed within one leaves a file whose complete
entries can be read; the next `TurnLog` repairs it and adds what is missing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.errors import NoSuchSession, UnreadableFile
from nexus.models import ModelClient, ModelReply, StreamItem
from nexus.render.console import Signs
from nexus.turnlog import times
from nexus.turnlog.console import EMOJI, checkpoint_line, unit_lines
from nexus.turnlog.entries import (
    CLEARED,
    SUMMARY,
    LogEntry,
    LogPosition,
    Unit,
    entry_text,
    parse_bare,
    parse_entry_line,
)
from nexus.turnlog.json_text import JsonItem, canonical, indent, items
from nexus.turnlog.write import entries_for, log_units, strict_entries
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message, Text
from nexus.types.stream_events import Reasoning, StreamEnd, StreamError, StreamEvent, Token

__all__ = ["TurnLog"]

END = "\n]\n"


class _LogPlace(Struct, frozen=True):
    """A place in the log that corresponds to one in the ledger."""

    at: LogPosition = LogPosition()
    seq: int = 0
    thread: int = 0
    prompt: str = ""
    """The last system prompt."""
    count: int = 0
    """Entries of the file up to here."""


class TurnLog:
    """The live turn log of one session: the `sink` of its turns, between the agent and its models.

        log = TurnLog(nx.engine, "main", "log.json", show=print)
        agent = Agent(nx, log.watch(models))
        await agent.run("Suggest lunch options please.", session="main", sink=log)

    Args:
        nx: The engine with the session.
        session: Label of the session.
        file: The log's file, which is created or continued; None for the console alone.
        show: Takes the lines of the console display, from now on.
        signs: Prefixes of these lines.
        full: Show system prompts and parameters without truncation.

    Attributes:
        error: Text of the last write that failed; the next step tries again. Empty if the file is complete.

    Raises:
        UnreadableFile: The file is another conversation's log, or no log.
        UnreadableFile: The file cannot be read or written.
    """

    def __init__(
        self,
        nx: Engine,
        session: str,
        file: str | Path | None = None,
        *,
        show: Callable[[str], object] | None = None,
        signs: Signs = EMOJI,
        full: bool = False,
    ) -> None:
        self.session = session
        self.file = Path(file) if file is not None else None
        self.error = ""
        self._nx = nx
        self._show = show
        self._signs = signs
        self._full = full
        self._opened_ms = nx.clock_ms()
        self._is_watching = self._has_shown = False
        self._silent_until = self._head()
        self._end = 0
        self._size = 0
        self._place = self._aligned()

    def __call__(self, event: StreamEvent) -> None:
        """Add what the ledger has by now; for `Agent.run(sink=…)`."""
        if isinstance(event, (Token, Reasoning)):  # pieces of a reply that is not stored yet
            return
        is_end = isinstance(event, (StreamEnd, StreamError))
        if self._is_watching and self._place.at.instructions is None and not is_end:
            return  # the prompt comes first, with the first call
        self._add("")

    def watch(self, models: ModelClient) -> ModelClient:
        """Return a client that adds the system prompt of each call to the log."""
        self._is_watching = True
        return _WatchedModels(self, models)

    def add_prompt(self, ctx: AssembledContext) -> None:
        """Add a call's system prompt, unless it is the last one or of another session."""
        if ctx.session_label == self.session:
            self._add(ctx.system_prompt)

    # From the ledger to the log ---------------------------------------------------------------------------------

    def _head(self) -> int:
        try:
            return self._nx.ledger.thread_info(self.session).head_seq
        except NoSuchSession:
            return 0

    def _add(self, prompt: str) -> None:
        """Add a prompt, if it is new, and the entries that the ledger has since the last time."""
        try:
            thread = self._nx.ledger.thread(self.session)
        except NoSuchSession:
            return
        old_prompt = self._place.prompt
        try:
            self._follow(thread)
        except (OSError, UnreadableFile) as error:
            self.error = str(error)
        place = replace(self._place, thread=thread)
        entries = list[LogEntry]()
        lines = list[str]()
        first = prompt or old_prompt  # the file may have been deleted
        if first and place.at.instructions is None:
            place = self._with_prompt(place, first, entries, lines if first != old_prompt else [])
        for entry in self._nx.ledger.iter_entries(self.session, place.seq):
            place = self._with_entry(place, entry, entries, lines)
        if prompt and prompt != place.prompt:
            place = self._with_prompt(place, prompt, entries, lines)
        self._place = replace(place, count=place.count + len(entries))
        if self._show is not None:
            for line in lines:
                self._show(line)
        try:
            self._write(entries)
        except OSError as error:
            self.error = f"{self.file} not written: {error.strerror or error}"
            self._size = -1

    def _follow(self, thread: int) -> None:
        """Find the place again after a rewind of the session, or a change of the file that was not made here."""
        old = self._place
        if old.thread not in (0, thread):
            shared = self._nx.ledger.sessions.last_shared_entry(thread, old.thread)
            self._silent_until = shared
            self._place = self._aligned(shared)
        elif self._was_changed():
            self._silent_until = old.seq
            self._place = self._aligned(old.seq)
        else:
            return
        self.error = ""
        if self.file is None:
            self._place = replace(self._place, prompt=old.prompt)

    def _with_prompt(self, place: _LogPlace, prompt: str, entries: list[LogEntry], lines: list[str]) -> _LogPlace:
        first = next(self._nx.ledger.iter_entries(self.session, 0, 1), None)
        at_ms = self._opened_ms
        if first is not None:
            first_ms = min((row.message.at_ms or first.at_ms for row in first.rows), default=first.at_ms)
            at_ms = min(at_ms, first_ms or at_ms)
        unit = Unit(message=Message("system", (Text(prompt),)), at_ms=at_ms)
        new, at = entries_for(unit, place.at)
        entries += strict_entries(new, Counter())
        lines += self._lines(unit_lines(unit, new, signs=self._signs, full=self._full))
        return replace(place, at=at, prompt=prompt)

    def _with_entry(self, place: _LogPlace, entry: Entry, entries: list[LogEntry], lines: list[str]) -> _LogPlace:
        displayed: list[str] = []
        if line := checkpoint_line(entry, {}, signs=self._signs):
            displayed.append(line)
        at = place.at
        for unit in _units(entry):
            new, at = entries_for(unit, at)
            entries += strict_entries(new, Counter())
            visible = [log_entry for log_entry in new if "made" not in log_entry.extra]
            if displayed and unit.kind == "message":
                displayed.append("")
            displayed += unit_lines(unit, visible, signs=self._signs, full=self._full)
        if entry.seq > self._silent_until:
            lines += self._lines(displayed)
        return replace(place, at=at, seq=entry.seq)

    def _lines(self, lines: Any) -> list[str]:
        """Return lines with an empty one before them, except at the beginning."""
        displayed = [*lines]
        if displayed and self._has_shown:
            displayed.insert(0, "")
        self._has_shown = self._has_shown or bool(displayed)
        return displayed

    # The file ---------------------------------------------------------------------------------------------------

    def _aligned(self, until: int | None = None) -> _LogPlace:
        """Return the place up to which the file agrees with the ledger, and make it the file's end.

        Without a file it is the end of the ledger, or the entry `until`.
        """
        text = self._file_text()
        place = _LogPlace()
        logged = _complete_items(text) if text is not None else None
        with suppress(NoSuchSession):
            place = replace(place, thread=self._nx.ledger.thread(self.session))
            for entry in self._nx.ledger.iter_entries(self.session, 0, until if logged is None else None):
                following = _matched(place, entry, logged)
                if following is None:
                    break
                place = following
        if text is None or logged is None:
            return place
        while place.count < len(logged) and (prompt := _prompt_entry(logged[place.count])):
            place = _behind_prompt(place, prompt)
        conversation = [number for number, item in enumerate(logged) if not _system_entry(item)]
        if conversation and place.count <= conversation[0]:
            raise UnreadableFile(
                f"{self.file} is the log of another conversation (choose another file)", code="bad_turn_log"
            )
        self._close_after(text, logged[place.count - 1].end if place.count else 0)
        return place

    def _file_text(self) -> str | None:
        """Return the text of the file, which is created; None without one. Raises UnreadableFile."""
        if self.file is None:
            return None
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600))
            if not self.file.is_file():
                raise UnreadableFile(f"{self.file} is not a regular file (choose another file)")
            text = self.file.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as error:
            raise UnreadableFile(f"{self.file} cannot be written: {error.strerror or error}") from error
        if text.strip() and not text.lstrip().startswith("["):
            raise UnreadableFile(f"{self.file} is not a turn log (choose another file)", code="bad_turn_log")
        return text

    def _close_after(self, text: str, end: int) -> None:
        """End the file's array behind an offset of its text."""
        remaining = text[:end].encode("utf-8", "surrogateescape")
        self._end = len(remaining)
        self._size = len(text.encode("utf-8", "surrogateescape"))
        close = END if end else "[]\n"
        if text[end:] != close:
            self._replace_end(close)

    def _was_changed(self) -> bool:
        """Return True if the file is not as the last write left it."""
        if self.file is None:
            return False
        with suppress(OSError):
            return self.file.stat().st_size != self._size
        return True

    def _write(self, entries: list[LogEntry]) -> None:
        if not entries or self.file is None:
            return
        texts = ("\n".join(indent(entry_text(entry), 1)) for entry in entries)
        text = (",\n" if self._end else "[\n") + ",\n".join(texts)
        self._replace_end(text + END)
        self._end = self._size - len(END)

    def _replace_end(self, text: str) -> None:
        assert self.file is not None
        data = text.encode()
        with self.file.open("r+b", buffering=0) as file:
            file.seek(self._end)
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            file.truncate()
        self._size = self._end + len(data)


class _WatchedModels:
    """A model client that shows a log the context of each call."""

    def __init__(self, log: TurnLog, models: ModelClient) -> None:
        self._log = log
        self._models = models

    async def stream(self, ctx: AssembledContext) -> AsyncGenerator[StreamItem, None]:
        self._log.add_prompt(ctx)
        async with aclosing(self._models.stream(ctx)) as stream:
            async for item in stream:
                yield item

    async def complete(self, ctx: AssembledContext) -> ModelReply:
        self._log.add_prompt(ctx)
        return await self._models.complete(ctx)

    async def aclose(self) -> None:
        await self._models.aclose()


def _complete_items(text: str) -> list[JsonItem]:
    """Return the items of an array up to where it breaks off."""
    logged: list[JsonItem] = []
    with suppress(UnreadableFile):
        for item in items(text):
            logged.append(item)  # noqa: PERF402 - those before the end are kept
    return logged


def _units(entry: Entry) -> list[Unit]:
    return [unit for unit in log_units([entry]) if isinstance(unit, Unit) and unit.kind != "results"]


def _matched(place: _LogPlace, entry: Entry, logged: list[JsonItem] | None) -> _LogPlace | None:
    """Return the place behind a ledger entry whose log entries are next in the file, after prompts; None if they are not.

    Without a file they are.
    """
    for unit in _units(entry):
        while True:
            new, at = entries_for(unit, place.at)
            texts = [canonical(entry_text(written)) for written in strict_entries(new, Counter())]
            items = (logged or [])[place.count : place.count + len(texts)]
            if logged is None or [canonical(item.text) for item in items] == texts:
                place = replace(place, at=at, count=place.count + len(texts))
                break
            prompt = _prompt_entry(items[0]) if items else None
            if prompt is None:
                return None
            place = _behind_prompt(place, prompt)
    return replace(place, seq=entry.seq)


def _system_entry(item: JsonItem) -> LogEntry | None:
    entry = parse_entry_line(item.text)
    if entry is not None and entry.role == "system":
        return entry
    return None


def _prompt_entry(item: JsonItem) -> LogEntry | None:
    """Return the entry of an item that may be a prompt: a system entry, but not of a compaction or clear."""
    entry = _system_entry(item)
    is_checkpoint = entry is not None and str(entry.content).startswith((SUMMARY, CLEARED))
    if is_checkpoint:
        return None
    return entry


def _behind_prompt(place: _LogPlace, entry: LogEntry) -> _LogPlace:
    text = parse_bare("system", entry.content).text
    at = place.at
    at = replace(
        at,
        index=entry.index + 1,
        at_us=times.parse_time(entry.timestamp),
        instructions=text if at.instructions is None else at.instructions,
    )
    return replace(place, at=at, prompt=text, count=place.count + 1)
