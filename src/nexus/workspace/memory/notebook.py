"""A workspace's memory for programs: add and forget facts, append to the log, search both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadSetting, NoSuchFact, SecretFound, WorkspaceMissing
from nexus.ledger.search_text import parse_query, words
from nexus.text.one_line import collapse_whitespace
from nexus.text.redact import redact
from nexus.types.block import ContextWarning
from nexus.workspace.files.reader import FILE_CHARS, Files, FileText
from nexus.workspace.memory import files
from nexus.workspace.memory.facts import (
    SECTION,
    Fact,
    LogEntry,
    comparison_key,
    facts_of,
    log_entries,
    log_line,
    normalize_fact,
    with_fact,
    without_fact,
)
from nexus.workspace.prompts import template_texts, without_marker
from nexus.workspace.sources.file_blocks import log_place, memory_place, memory_text

FACT_CHARS = 4_000  # size limit of a fact: a fifth of the part of the file that a context shows
ENTRY_CHARS = 1_000_000
SECTION_CHARS = 100
LOGS = ("memory/HISTORY.md", "HISTORY.md")


class AddedFact(Struct, frozen=True):
    """An added fact with its number and date, or an added entry of the log (number 0)."""

    file: str
    number: int
    at: str
    text: str
    warnings: tuple[str, ...] = ()


class MemoryMatch(Struct, frozen=True):
    """A fact or log entry that a search returns."""

    origin: str  # the file
    number: int
    at: str  # date or time as written, "" if there is none
    text: str
    section: str = ""  # heading above a fact
    matched: int = 0  # number of matching words and quoted phrases


class Notebook:
    """The memory of one workspace. Each operation reads the files, so programs may share them.

    `timezone` is an IANA name, UTC if empty; `file_chars` is the part of the file that contexts show. Raises
    WorkspaceMissing, BadSetting; every operation raises UnreadableFile, and those that write MemoryBusy.
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
            raise WorkspaceMissing(f"folder {self.root} not found (create a workspace: nexus init {self.root})")
        self.file_chars = file_chars
        try:
            self._zone = ZoneInfo(timezone or "UTC")
        except (KeyError, ValueError, OSError) as error:
            raise BadSetting(f"time zone {timezone!r} not found") from error
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._files = Files(self.root, file_chars, template_texts())

    def display_text(self) -> tuple[FileText | None, list[ContextWarning]]:
        """Return the memory file as contexts show it, None without one, and warnings."""
        return memory_text(self._files)

    @property
    def file(self) -> str:
        """Name of the memory file in use, else of the first existing one, else of a new one."""
        return memory_place(self._files)

    @property
    def log(self) -> str:
        """Name of the log, in the folder of the memory file."""
        return log_place(self.file)

    def text(self) -> str:
        """Return the memory file's whole text, "" without a file."""
        return files.read(self.root, self.file).text

    def facts(self) -> list[Fact]:
        """Return the facts of the memory file, numbered from 1; none of an unchanged template."""
        return facts_of(self.text())

    def entries(self) -> Iterator[LogEntry]:
        """Yield the entries of the log, oldest first."""
        return log_entries(files.lines(self.root, self.log))

    def add(self, text: str, *, section: str = SECTION, force: bool = False) -> AddedFact:
        """Add a fact with today's date under a heading. Raises BadFact; SecretFound unless `force`."""
        fact = normalize_fact(text, FACT_CHARS)
        section = collapse_whitespace(normalize_fact(section, SECTION_CHARS))
        secrets = _secret_warnings(fact, force=force)
        date = self._now("%Y-%m-%d")

        def update(old: str) -> tuple[str, AddedFact]:
            # An edited file loses the line that marks it as an unchanged template.
            old = without_marker(old) if old.strip() in template_texts() else old
            new = with_fact(old, fact, date, section)
            number = next(other.number for other in facts_of(new) if comparison_key(other.text) == comparison_key(fact))
            warnings = list(secrets)
            if len(new) > self.file_chars:
                text = f"{name} has {len(new):,} characters; contexts show the first {self.file_chars:,} "
                warnings.append(f"{text}(forget outdated facts, the log keeps them)")
            return new, AddedFact(name, number, date, fact, tuple(warnings))

        with files.lock_folder(self.root):
            name = self.file
            return files.change(self.root, name, update)

    def append(self, text: str, *, force: bool = False) -> AddedFact:
        """Append an entry with the current time to the log. Raises BadFact; SecretFound unless `force`."""
        entry = normalize_fact(text, ENTRY_CHARS)
        secrets = _secret_warnings(entry, force=force)
        with files.lock_folder(self.root):
            return AddedFact(self.log, 0, self._append_log(entry), entry, secrets)

    def forget(self, what: str) -> Fact:
        """Move a fact from the memory file to the log.

        `what` is its number, or its exact text with or without the date (white space does not matter). Raises NoSuchFact if
        no fact or several match.
        """
        with files.lock_folder(self.root):
            name = self.file
            text = files.read(self.root, name).text
            fact = _find_fact(what, facts_of(text))
            without_fact(text, fact)  # raises before the log entry is written
            self._log_forgotten(fact)

            def update(old: str) -> tuple[str, Fact]:
                # An editor may have changed the file meanwhile, and with it the fact's number.
                key = (fact.text, fact.date, fact.section)
                same = [other for other in facts_of(old) if (other.text, other.date, other.section) == key]
                if not same:
                    raise NoSuchFact("fact was removed by another program at the same time")
                return without_fact(old, min(same, key=lambda other: abs(other.number - fact.number))), fact

            return files.change(self.root, name, update)

    def write(self, text: str) -> list[Fact]:
        """Replace the whole memory file by a text, unescaped, move facts that it lacks to the log, and return them."""
        remaining = {comparison_key(fact.text) for fact in facts_of(text)}
        with files.lock_folder(self.root):
            name = self.file
            old_facts = facts_of(files.read(self.root, name).text)
            removed = [fact for fact in old_facts if comparison_key(fact.text) not in remaining]
            for fact in removed:
                self._log_forgotten(fact)
            return files.change(self.root, name, lambda _: (text, removed))

    def search(self, query: str, limit: int = 20) -> list[MemoryMatch]:
        """Search facts and log entries by words and quoted phrases; none if the query has no word.

        Texts with more matches come first, then newer ones, undated ones last, then facts before the log.
        """
        name = self.file
        facts = (
            ((0, fact.number), MemoryMatch(name, fact.number, fact.date, fact.text, fact.section))
            for fact in self.facts()
        )
        entries = (
            ((1, -entry.number), MemoryMatch(log, entry.number, entry.at, entry.text))
            for log in LOGS
            if (self.root / log).is_file()
            for entry in log_entries(files.lines(self.root, log))
        )
        # Words are padded, so that a phrase matches whole words only.
        phrases = [f" {' '.join(phrase)} " for phrase in parse_query(query)]

        def ranked() -> Iterator[tuple[tuple[int, list[int], tuple[int, int]], MemoryMatch]]:
            for rank, match in chain(facts, entries):
                normalized = f" {' '.join(words(match.text))} "
                if matched := sum(phrase in normalized for phrase in phrases):
                    # ISO dates are negated letter by letter, so that newer ones come first.
                    order = (-matched, [-ord(letter) for letter in match.at] or [0], rank)
                    yield order, replace(match, matched=matched)

        return [match for _, match in nsmallest(limit, ranked(), key=lambda row: row[0])]

    def _append_log(self, text: str) -> str:
        at = self._now("%Y-%m-%d %H:%M")
        files.append(self.root, self.log, log_line(at, text))
        return at

    def _log_forgotten(self, fact: Fact) -> None:
        origin = ", ".join(part for part in (fact.section, fact.date) if part)
        self._append_log(f"Forgotten{f' ({origin})' if origin else ''}: {fact.text}")

    def _now(self, form: str) -> str:
        try:
            return datetime.fromtimestamp(self._clock_ms() / 1000, UTC).astimezone(self._zone).strftime(form)
        except (ValueError, OverflowError, OSError) as error:
            raise BadSetting(f"clock returns an invalid time: {error}") from error


def _secret_warnings(text: str, *, force: bool) -> tuple[str, ...]:
    kinds = sorted(redact(text).counts)
    if kinds and not force:
        raise SecretFound(kinds)
    return (f"text may contain a secret ({', '.join(kinds)}); memory is sent to the model unchanged",) * bool(kinds)


def _find_fact(what: str, facts: Sequence[Fact]) -> Fact:
    """Return the only fact with this number or text. Raises NoSuchFact."""
    target = collapse_whitespace(what)
    number = int(target.removeprefix("#")) if target.removeprefix("#").isdecimal() and len(target) < 10 else 0
    matches: list[Fact] = []
    for fact in facts:
        text = collapse_whitespace(fact.text)
        # As written, with the date before it, and as `nexus memory show` prints it.
        labels = (text, f"{fact.date}: {text}" if fact.date else text, f"{fact.date} {text}".strip())
        if fact.number == number or target in labels:
            matches.append(fact)
    if len(matches) == 1:
        return matches[0]
    if matches:
        numbers = [fact.number for fact in matches]
        hint = "nothing was changed; use a number of `nexus memory show`, or the text with its date"
        raise NoSuchFact(f"{len(matches)} facts match: {', '.join(map(str, numbers))} ({hint})", numbers)
    hint = "list facts: nexus memory show; search: nexus memory search"
    raise NoSuchFact(f"no fact has this number or exact text ({hint})")
