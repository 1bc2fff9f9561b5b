"""A workspace's memory as a program writes it: facts are added and forgotten, the log is added to, both are searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct

from nexus.errors import BadSetting, NoSuchFact, SecretFound, WorkspaceMissing
from nexus.text.one_line import collapse_whitespace
from nexus.text.redact import redact
from nexus.types.block import ContextWarning
from nexus.workspace.files.reader import FILE_CHARS, Files, FileText
from nexus.workspace.files.templates import is_edited, template_texts
from nexus.workspace.memory import files
from nexus.workspace.memory.facts import SECTION, Fact, facts_of, with_fact, without_fact
from nexus.workspace.memory.log import LogEntry, log_entries, log_line
from nexus.workspace.memory.normalize import comparison_key, normalize_fact
from nexus.workspace.memory.search import MemoryMatch, find
from nexus.workspace.sources.file_blocks import log_place, memory_place, memory_text

FACT_CHARS = 4_000
"""A fifth of what a context shows of the file: more is no fact."""

ENTRY_CHARS = 1_000_000
SECTION_CHARS = 100
LOGS = ("memory/HISTORY.md", "HISTORY.md")


class AddedFact(Struct, frozen=True):
    """What was added and where: a fact with its number and date, or an entry of the log (number 0)."""

    file: str
    number: int
    at: str
    text: str
    warnings: tuple[str, ...] = ()


class Notebook:
    """The memory of one workspace. It holds nothing: each operation reads the files, so programs may share them.

    `timezone` is an IANA name, UTC if empty; `file_chars` is what contexts show of the file. Raises WorkspaceMissing,
    BadSetting; every operation UnreadableFile, and those that write MemoryBusy.
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        timezone: str = "",
        clock_ms: Callable[[], int] | None = None,
        file_chars: int = FILE_CHARS,
    ) -> None:
        self.root = Path(workspace).expanduser()
        if not self.root.is_dir():
            raise WorkspaceMissing(f"there is no folder {self.root}; `nexus init {self.root}` makes a workspace")
        self.file_chars = file_chars
        self._zone = _zone(timezone)
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._files = Files(self.root, file_chars, template_texts())

    def display_text(self) -> tuple[FileText | None, list[ContextWarning]]:
        """The memory file as contexts show it, None if there is none; and what should be known about it."""
        return memory_text(self._files)

    @property
    def file(self) -> str:
        """The name of the memory file: the one that contexts show, else the first that is there, else a new one's."""
        return memory_place(self._files)

    @property
    def log(self) -> str:
        """The name of the log, beside the memory file."""
        return log_place(self.file)

    def text(self) -> str:
        """The memory file's whole text, "" if it is not there."""
        return files.read(self.root, self.file).text

    def facts(self) -> list[Fact]:
        """The facts of the memory file, numbered from 1; none of an untouched template."""
        return facts_of(self.text())

    def entries(self) -> Iterator[LogEntry]:
        """The entries of the log, oldest first."""
        return log_entries(files.lines(self.root, self.log))

    def add(self, text: str, *, section: str = SECTION, force: bool = False) -> AddedFact:
        """Adds a fact with today's date under a heading. Raises BadFact; SecretFound unless `force`."""
        fact = normalize_fact(text, FACT_CHARS)
        section = collapse_whitespace(normalize_fact(section, SECTION_CHARS))
        secrets = _secrets(fact, force=force)
        date = self._now("%Y-%m-%d")

        def changed(old: str) -> tuple[str, AddedFact]:
            new = with_fact(_begun(old), fact, date, section)
            number = next(one.number for one in facts_of(new) if comparison_key(one.text) == comparison_key(fact))
            return new, AddedFact(name, number, date, fact, (*secrets, *self._too_long(name, new)))

        with files.lock_folder(self.root):
            name = self.file
            return files.change(self.root, name, changed)

    def append(self, text: str, *, force: bool = False) -> AddedFact:
        """Adds an entry with the present time to the log. Raises BadFact; SecretFound unless `force`."""
        entry = normalize_fact(text, ENTRY_CHARS)
        secrets = _secrets(entry, force=force)
        with files.lock_folder(self.root):
            return AddedFact(self.log, 0, self._log(entry), entry, secrets)

    def forget(self, what: str) -> Fact:
        """Takes a fact out of the memory file, and puts it into the log with the time.

        `what` is its number as shown, or its exact text, with its date or without (white space does not matter). Raises
        NoSuchFact where none is meant or more than one.
        """

        def changed(old: str) -> tuple[str, Fact]:
            fact = _meant(what, facts_of(old))
            return without_fact(old, fact), fact

        with files.lock_folder(self.root):
            name = self.file
            _, fact = changed(files.read(self.root, name).text)
            self._log(_forgotten(fact))
            return files.change(self.root, name, lambda old: (without_fact(old, _same(old, fact)), fact))

    def write(self, text: str) -> list[Fact]:
        """Puts another text in the place of the whole memory file; facts that it no longer has go to the log.

        Returns these. Nothing is escaped: it is a file that the caller has edited.
        """
        kept = {comparison_key(one.text) for one in facts_of(text)}
        with files.lock_folder(self.root):
            name = self.file
            gone = [one for one in facts_of(files.read(self.root, name).text) if comparison_key(one.text) not in kept]
            for fact in gone:
                self._log(_forgotten(fact))
            return files.change(self.root, name, lambda _: (text, gone))

    def search(self, query: str, limit: int = 20) -> list[MemoryMatch]:
        """Facts and entries of the log by their words; see `nexus.workspace.memory.search`."""
        name = self.file
        logs = (name for name in LOGS if (self.root / name).is_file())
        entries = ((log, one) for log in logs for one in log_entries(files.lines(self.root, log)))
        return find(query, ((name, one) for one in self.facts()), entries, limit)

    def _log(self, text: str) -> str:
        at = self._now("%Y-%m-%d %H:%M")
        files.append(self.root, self.log, log_line(at, text))
        return at

    def _now(self, form: str) -> str:
        try:
            return datetime.fromtimestamp(self._clock_ms() / 1000, UTC).astimezone(self._zone).strftime(form)
        except (ValueError, OverflowError, OSError) as error:
            raise BadSetting(f"the clock gives no time that has a date: {error}") from error

    def _too_long(self, name: str, text: str) -> Iterator[str]:
        if len(text) > self.file_chars:
            yield (
                f"{name} has {len(text):,} characters now, and contexts show the first {self.file_chars:,}: "
                "forget what no longer holds (it stays in the log)"
            )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise BadSetting(f"there is no time zone {name!r}") from error


def _begun(text: str) -> str:
    """The text, without the line that says that nobody has changed it if that is so."""
    return is_edited(text) if text.strip() in template_texts() else text


def _secrets(text: str, *, force: bool) -> tuple[str, ...]:
    kinds = sorted(redact(text).counts)
    if kinds and not force:
        raise SecretFound(kinds)
    return (f"the text looks as if it held a secret ({', '.join(kinds)}): memory goes to the model as it is",) * bool(
        kinds
    )


def _meant(what: str, facts: Sequence[Fact]) -> Fact:
    """The one fact that is meant. Raises NoSuchFact."""
    wanted = collapse_whitespace(what)
    number = int(wanted.removeprefix("#")) if wanted.removeprefix("#").isdecimal() and len(wanted) < 10 else 0
    found = [one for one in facts if one.number == number or wanted in _ways(one)]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = [one.number for one in found]
        raise NoSuchFact(
            f"{len(found)} facts could be meant, {', '.join(map(str, numbers))}: nothing was changed. Name one by its "
            "number, as `nexus memory show` has it, or by its text with the date",
            numbers,
        )
    raise NoSuchFact(
        "no fact has this number or exact text, and nothing is guessed: `nexus memory show` lists all, "
        "`nexus memory search` finds some"
    )


def _ways(fact: Fact) -> tuple[str, str, str]:
    """How a fact may be named: its text, with its date before it, and as it is printed."""
    text = collapse_whitespace(fact.text)
    return text, f"{fact.date}: {text}" if fact.date else text, f"{fact.date} {text}".strip()


def _same(text: str, fact: Fact) -> Fact:
    """The same fact in a text that somebody may have changed meanwhile. Raises NoSuchFact."""
    same = [one for one in facts_of(text) if (one.text, one.date, one.section) == (fact.text, fact.date, fact.section)]
    if not same:
        raise NoSuchFact("somebody took the fact out of the file at the same time")
    return min(same, key=lambda one: abs(one.number - fact.number))


def _forgotten(fact: Fact) -> str:
    """What the log says of a fact that is forgotten."""
    told = ", ".join(part for part in (fact.section, fact.date) if part)
    return f"Forgotten{f' ({told})' if told else ''}: {fact.text}"
