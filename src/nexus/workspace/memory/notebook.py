"""A workspace's memory for programs: add and forget facts, append to the log, search both."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadSetting, NexusError, NotFound, UnreadableFile, secret_found
from nexus.ledger.search_text import parse_query, words
from nexus.text.one_line import collapse_whitespace
from nexus.text.redact import redact
from nexus.types.block import ContextWarning
from nexus.workspace.files.reader import FILE_CHARS, Files, FileText
from nexus.workspace.memory import changes, files
from nexus.workspace.memory.changes import PROFILE, Change, StoredFact
from nexus.workspace.memory.facts import (
    SECTION,
    Fact,
    HistoryEntry,
    comparison_key,
    facts_of,
    log_entries,
    log_line,
    normalize_fact,
    with_fact,
    without_fact,
)
from nexus.workspace.prompts import template_texts, without_marker
from nexus.workspace.sources.memory import log_place, memory_place, memory_text
from nexus.workspace.user_profiles import Update, UserProfiles, profile_lines, with_profile_lines

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

    origin: str
    """The file."""
    number: int
    at: str
    """Date or time as written; empty if there is none."""
    text: str
    section: str = ""
    """Heading above a fact."""
    matched: int = 0
    """Number of matching words and quoted phrases."""


class Notebook:
    """The memory of one workspace. Each operation reads the files, so programs may share them.

    `timezone` is an IANA name, UTC if empty; `file_chars` is the part of the file that contexts show. `profiles` are the
    users' profiles (`Engine.user_profiles`); without them, no fact goes to a profile. Raises NotFound, BadSetting; every operation raises UnreadableFile, and those that write MemoryBusy.
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        timezone: str = "",
        clock_ms: Callable[[], int] | None = None,
        file_chars: int = FILE_CHARS,
        profiles: UserProfiles | None = None,
    ) -> None:
        self.root = Path(workspace).expanduser()
        if not self.root.is_dir():
            raise NotFound(
                f"folder {self.root} not found (create a workspace: nexus init {self.root})", code="workspace_missing"
            )
        self.file_chars = file_chars
        self.profiles = profiles
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

    def entries(self) -> Iterator[HistoryEntry]:
        """Yield the entries of the log, oldest first."""
        return log_entries(files.lines(self.root, self.log))

    def add(self, text: str, *, section: str = SECTION, force: bool = False) -> AddedFact:
        """Add a fact with today's date under a heading. Raises BadFact; BadFact unless `force`."""
        fact = normalize_fact(text, FACT_CHARS)
        section = collapse_whitespace(normalize_fact(section, SECTION_CHARS))
        warnings = list(_secret_warnings(fact, force=force))
        added = StoredFact(self.file, section, self.today(), fact)
        change = self.revise("add", added=[added])
        text = self.text()
        name = change.added[0].file
        key = comparison_key(fact)
        number = next((other.number for other in facts_of(text) if comparison_key(other.text) == key), 0)
        if len(text) > self.file_chars:
            size = f"{name} has {len(text):,} characters; contexts show the first {self.file_chars:,} "
            warnings.append(f"{size}(forget outdated facts, the log keeps them)")
        return AddedFact(name, number, added.date, fact, tuple(warnings))

    def append(self, text: str, *, force: bool = False) -> AddedFact:
        """Append an entry with the current time to the log. Raises BadFact; BadFact unless `force`."""
        entry = normalize_fact(text, ENTRY_CHARS)
        secrets = _secret_warnings(entry, force=force)
        with files.lock_folder(self.root):
            return AddedFact(self.log, 0, self._append_log(entry), entry, secrets)

    def forget(self, what: str) -> Fact:
        """Move a fact from the memory file to the log.

        `what` is its number, or its exact text with or without the date (white space does not matter). Raises NotFound if
        no fact or several match.
        """
        with files.lock_folder(self.root):
            fact = _find_fact(what, self.facts())
            self._revise("forget", removed=[StoredFact(self.file, fact.section, fact.date, fact.text)])
            return fact

    def write(self, text: str) -> list[Fact]:
        """Replace the whole memory file by a text, unescaped, move facts that it lacks to the log, and return them."""
        with files.lock_folder(self.root):
            name = self.file
            old = self.facts()
            new = facts_of(text)
            removed = _missing(old, new)
            added = _missing(new, old)
            if not removed and not added:
                return files.change(self.root, name, lambda _: (text, removed))
            with self._journaled("write", _stored(name, added), _stored(name, removed)):
                for fact in removed:
                    self._log_removed("Forgotten", fact.section, fact.date, fact.text)
                return files.change(self.root, name, lambda _: (text, removed))

    def changes(self) -> list[Change]:
        """Return the changes that Nexus made to memory, oldest first."""
        return changes.changes(self.root, self._is_written)

    def undo(self, number: int = 0) -> Change:
        """Undo a change, by default the newest: remove the facts that it added, restore those that it removed.

        Facts that are gone or back already stay so, and other facts are not touched. Raises NotFound if the change does
        not exist, is undone, or has nothing left to undo; BadFact if a fact cannot be restored.
        """
        with files.lock_folder(self.root):
            journal = self.changes()
            undoable = [change.number for change in journal if not change.undone_by and change.by != "undo"]
            change = _change_to_undo(journal, number, max(undoable, default=0))
            present = {fact.key: fact for fact in self.stored_facts(_profiles_in(change.added, change.removed))}
            newer = [other for other in journal if other.number > change.number and other.number in undoable]
            later = {fact.key for other in newer for fact in other.added}
            removed = [present[fact.key] for fact in change.added if fact.key in present and fact.key not in later]
            restored = [fact for fact in change.removed if fact.key not in present]
            if not removed and not restored:
                raise NotFound(
                    f"change {change.number} cannot be undone: the facts that it added were changed or removed since, and "
                    "those that it removed are back (nothing was changed)",
                    code="no_such_fact",
                )
            return self._revise("undo", added=restored, removed=removed, of=change.number)

    def revise(self, by: str, *, added: Sequence[StoredFact] = (), removed: Sequence[StoredFact] = ()) -> Change:
        """Add and remove facts as one change that `undo` reverts; removed facts go to the log.

        Raises BadFact for a fact that memory has, NotFound for one that it lacks; nothing is changed then.
        """
        with files.lock_folder(self.root):
            return self._revise(by, added=added, removed=removed)

    def _revise(
        self, by: str, *, added: Sequence[StoredFact] = (), removed: Sequence[StoredFact] = (), of: int = 0
    ) -> Change:
        name = self.file
        in_file = [fact for fact in added if fact.file != PROFILE], [fact for fact in removed if fact.file != PROFILE]

        def update(old: str) -> tuple[str, tuple[StoredFact, ...]]:
            # An edited file loses the line that marks it as an unchanged template.
            if in_file[0] and old.strip() in template_texts():
                text = without_marker(old)
            else:
                text = old
            for fact in in_file[1]:
                text = without_fact(text, _same_fact(fact, facts_of(text)))
            for fact in in_file[0]:
                text = with_fact(text, fact.text, fact.date, fact.section or SECTION)
            keys = {fact.key for fact in in_file[0]}
            return text, tuple(fact for fact in _stored(name, facts_of(text)) if fact.key in keys)

        _, written = update(self.text())  # raises before anything is written
        profile_updates = self._profile_updates(added, removed)
        added = (*written, *(fact for fact in added if fact.file == PROFILE))
        verb = {"undo": "Undone", "accept": "Replaced"}.get(by, "Forgotten")
        with self._journaled(by, added, removed, of) as change:
            for fact in in_file[1]:
                self._log_removed(verb, fact.section, fact.date, fact.text)
            files.change(self.root, name, update)
            for principal, change_profile in profile_updates.items():
                if self.profiles is not None:
                    self.profiles.change(principal, change_profile)
        return change

    @contextmanager
    def _journaled(
        self, by: str, added: Sequence[StoredFact], removed: Sequence[StoredFact], of: int = 0
    ) -> Generator[Change]:
        """Write a change to the journal before and after the files are written."""
        number = changes.next_number(self.root, self._is_written)
        change = Change(number, self._now("%Y-%m-%d %H:%M"), by, tuple(added), tuple(removed), of)
        changes.begin(self.root, change)
        try:
            yield change
        except NexusError:
            changes.finish(self.root, number, dropped=not self._is_written(change))
            raise
        changes.finish(self.root, number)

    def _is_written(self, change: Change) -> bool:
        present = {fact.key for fact in self.stored_facts(_profiles_in(change.added, change.removed))}
        return any(fact.key in present for fact in change.added) or any(
            fact.key not in present for fact in change.removed
        )

    def stored_facts(self, principals: Iterable[str] = ()) -> list[StoredFact]:
        """Return the facts of the memory file, and the lines of the profiles of some principals."""
        lines = ((principal, line) for principal in principals for line in self.profile(principal))
        of_profiles = (StoredFact(PROFILE, "", "", line, principal) for principal, line in lines)
        return [*_stored(self.file, self.facts()), *of_profiles]

    def today(self) -> str:
        """Return today's date in the user's time zone."""
        return self._now("%Y-%m-%d")

    def profile(self, principal: str = "") -> list[str]:
        """Return the lines of a principal's profile, without one of the local user's; none without `profiles`."""
        if self.profiles is not None:
            return profile_lines(self.profiles.read(principal)[0])
        return []

    def _profile_updates(self, added: Sequence[StoredFact], removed: Sequence[StoredFact]) -> dict[str, Update]:
        """Return the changes of profiles by principal. Raises BadSetting, UnreadableFile."""
        updates: dict[str, Update] = {}
        for principal in _profiles_in(added, removed):
            if self.profiles is None or not self.profiles.may_have(principal):
                raise BadSetting("memory opened without this user's profile (pass profiles=nx.user_profiles)")
            warnings = self.profiles.read(principal)[1]
            if warnings:
                raise UnreadableFile(f"{warnings[0].source} {warnings[0].message}")
            updates[principal] = partial(_with_facts, principal, added, removed)
        return updates

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

    def _log_removed(self, verb: str, section: str, date: str, text: str) -> None:
        origin = ", ".join(part for part in (section, date) if part)
        self._append_log(f"{verb}{f' ({origin})' if origin else ''}: {text}")

    def _now(self, form: str) -> str:
        try:
            return datetime.fromtimestamp(self._clock_ms() / 1000, UTC).astimezone(self._zone).strftime(form)
        except (ValueError, OverflowError, OSError) as error:
            raise BadSetting(f"clock returns an invalid time: {error}") from error


def _secret_warnings(text: str, *, force: bool) -> tuple[str, ...]:
    kinds = sorted(redact(text).counts)
    if kinds and not force:
        raise secret_found(kinds)
    return (f"text may contain a secret ({', '.join(kinds)}); memory is sent to the model unchanged",) * bool(kinds)


def _find_fact(what: str, facts: Sequence[Fact]) -> Fact:
    """Return the only fact with this number or text. Raises NotFound."""
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
        raise NotFound(
            f"{len(matches)} facts match: {', '.join(map(str, numbers))} ({hint})", numbers, code="no_such_fact"
        )
    hint = "list facts: nexus memory show; search: nexus memory search"
    raise NotFound(f"no fact has this number or exact text ({hint})", code="no_such_fact")


def _stored(file: str, facts: Iterable[Fact]) -> tuple[StoredFact, ...]:
    return tuple(StoredFact(file, fact.section, fact.date, fact.text) for fact in facts)


def _profiles_in(*facts: Sequence[StoredFact]) -> list[str]:
    """Return the principals in whose profiles some of the facts are."""
    return list(dict.fromkeys(fact.principal for fact in chain(*facts) if fact.file == PROFILE))


def _with_facts(
    principal: str, added: Sequence[StoredFact], removed: Sequence[StoredFact], profile: dict[str, Any]
) -> dict[str, Any]:
    """Return a principal's profile with and without some facts."""
    old = {comparison_key(fact.text) for fact in removed if (fact.file, fact.principal) == (PROFILE, principal)}
    new = [collapse_whitespace(fact.text) for fact in added if (fact.file, fact.principal) == (PROFILE, principal)]

    def update(lines: list[str]) -> list[str]:
        remaining = [line for line in lines if comparison_key(line) not in old]
        remaining_keys = {comparison_key(line) for line in remaining}
        return [*remaining, *(line for line in new if comparison_key(line) not in remaining_keys)]

    return with_profile_lines(profile, update)


def _missing(facts: Sequence[Fact], others: Sequence[Fact]) -> list[Fact]:
    """Return the facts that are not among the others."""
    keys = {comparison_key(fact.text) for fact in others}
    return [fact for fact in facts if comparison_key(fact.text) not in keys]


def _same_fact(wanted: StoredFact, facts: Sequence[Fact]) -> Fact:
    """Return the fact with this text, preferably under the same heading with the same date. Raises NotFound."""
    same = [fact for fact in facts if comparison_key(fact.text) == comparison_key(wanted.text)]
    if not same:
        raise NotFound("fact was removed by another program at the same time", code="no_such_fact")
    return max(same, key=lambda fact: (fact.section == wanted.section, fact.date == wanted.date))


def _change_to_undo(journal: Iterable[Change], number: int, newest: int) -> Change:
    """Return a change that is to be undone, without a number the newest that can be. Raises NotFound."""
    by_number = {change.number: change for change in journal}
    change = by_number.get(number or newest)
    if change is None:
        what = f"change {number} not found" if number else "no change to undo"
        raise NotFound(f"{what} (list changes: nexus memory changes)", code="no_such_fact")
    if change.undone_by:
        raise NotFound(f"change {change.number} is already undone, by change {change.undone_by}", code="no_such_fact")
    return change
