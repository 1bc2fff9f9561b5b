"""Finding out what works here: skills, the programs, variables and credentials that they require, and what was used.

A look is taken at a session's start, at a compaction and when asked for, and kept between (document 002): the system
slot must not move because a program was installed meanwhile.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from nexus.errors import CredentialError
from nexus.types.block import ContextWarning
from nexus.types.environment import Capability, CapabilityState, Environment
from nexus.types.skill import Skill
from nexus.workspace.credentials.index import CredentialEntry
from nexus.workspace.credentials.names import is_name, is_valid_for, is_variable
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.probe import Probe, is_program
from nexus.workspace.environment.snapshot import EnvironmentSnapshot
from nexus.workspace.skills.usage import used_skills
from nexus.workspace.source_context import WorkspaceContext
from nexus.workspace.sources.skills import discover_skills

GENERAL = "General"
"""The category of a skill that names none."""

MOST_KEPT = 256
NEEDS_SHOWN = 3

_WORDS = re.compile(r"\w[\w.+#/&-]*(?: [\w.+#/&-]+)*")
_BEST: tuple[CapabilityState, ...] = ("active", "ready", "setup", "broken")
_KINDS = (("API_KEY", "API key"), ("APIKEY", "API key"), ("KEY", "key"), ("TOKEN", "token"), ("PASSWORD", "password"))


@dataclass(slots=True)
class Surveys:
    """Looks by session and by the mark since which they hold; the one not used for longest goes first.

    A session that is not stored yet is known by its label, then by its thread.
    """

    look: Callable[[int], EnvironmentSnapshot]
    _kept: OrderedDict[tuple[int | str, int], EnvironmentSnapshot] = field(
        default_factory=OrderedDict[tuple["int | str", int], EnvironmentSnapshot]
    )

    def of(self, session: str, thread: int | None, mark: int, at_ms: int = 0) -> EnvironmentSnapshot:
        """What was found for a session's thread when its compaction `mark` (an entry's seq, 0 is none) was new.

        `at_ms` is the time of the call, which the look is of where one is taken now.
        """
        key = (session if thread is None else thread, mark)
        found = self._kept.pop(key, None) or (self._kept.pop((session, 0), None) if not mark else None)
        self._kept[key] = found = found or self.look(at_ms)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    def forget(self) -> None:
        """Each session's next call finds out anew."""
        self._kept.clear()


def survey(around: WorkspaceContext, credentials: Credentials, now_ms: int, probe: Probe) -> Environment:
    """What works here now. No program is run, no keyring asked and no value kept; what cannot be read is a warning."""
    skills = discover_skills(around).skills
    used, warned = used_skills(around.files.root) if around.files is not None else ({}, [])
    try:
        known = credentials.entries(declared_credentials(skills))
    except CredentialError as error:
        known = {}
        warned.append(ContextWarning("nexus:credentials", str(error)))
    best: dict[tuple[str, str], Capability] = {}
    for skill in sorted(skills, key=lambda one: one.name):
        judged = _judged(skill, probe, known, used=skill.name in used)
        for capability in _listed(skill, judged, warned):
            place = (capability.category, capability.name)
            other = best.get(place)
            if other is None or _BEST.index(capability.state) < _BEST.index(other.state):
                best[place] = capability
    there = {name: entry for name, entry in known.items() if entry.state != "missing"}
    broken = tuple(name for name, entry in there.items() if entry.state == "broken")
    return Environment(tuple(best[place] for place in sorted(best)), len(there), broken, now_ms, tuple(warned))


def declared_credentials(skills: Iterable[Skill]) -> dict[str, tuple[str, ...]]:
    """The credentials that skills require, sorted, each with the variables that these skills declare for it."""
    found: dict[str, set[str]] = {}
    for skill in skills:
        for name in filter(is_name, skill.requires.credentials):
            own = (one for one in skill.requires.env if is_variable(one) and is_valid_for(one, name))
            found.setdefault(name, set()).update(own)
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def _judged(skill: Skill, probe: Probe, known: Mapping[str, CredentialEntry], *, used: bool) -> Capability:
    """The state of a skill, as a capability that has no name yet."""
    needs, why = _missing(skill, probe, known)
    entries = [known[name] for name in sorted(set(skill.requires.credentials)) if name in known]
    broken = [entry.name for entry in entries if entry.state == "broken"]
    proven = bool(entries) and all(entry.state == "ok" for entry in entries)
    state: CapabilityState = "setup" if needs else "broken" if broken else "active" if used or proven else "ready"
    return Capability(
        name="",
        category="",
        state=state,
        needs=_in_words(needs) if needs else "",
        skill=skill.name,
        why=(*why, *(f"credential {name} is marked as broken" for name in broken)),
        credentials=tuple(entry.name for entry in entries if entry.state != "missing"),
    )


def _missing(skill: Skill, probe: Probe, known: Mapping[str, CredentialEntry]) -> tuple[set[str], list[str]]:
    """What a skill requires and does not have: in a word or two each, and as sentences."""
    needs: set[str] = set()
    why: list[str] = []
    for program in sorted(set(skill.requires.bins)):
        if not is_program(program):
            needs.add("a program")
            why.append(f"{program!r} is no name of a program")
        elif not probe.program(program):
            needs.add(program)
            why.append(f"program {program} is not on the path")
    either = [program for program in skill.requires.any_bins if is_program(program)]
    if skill.requires.any_bins and not any(map(probe.program, either)):
        needs.add(" or ".join(either) or "a program")
        why.append(f"none of the programs {', '.join(either) or '(no names of such)'} is on the path")
    unset = [one for one in sorted(set(skill.requires.env)) if not probe.variable(one)]
    for variable in unset:
        plain = is_variable(variable)
        needs.add(_kind(variable) if plain else "a variable")
        why.append(f"variable {variable} is not set" if plain else f"{variable!r} is no name of a variable")
    for name in sorted(set(skill.requires.credentials)):
        if not is_name(name):
            needs.add("a credential")
            why.append(f"{name!r} is no name of a credential")
        elif (name not in known or known[name].state == "missing") and not any(
            is_valid_for(one, name) for one in unset
        ):
            needs.add(f"{name} credential")
            why.append(f"credential {name} is not configured")
    return needs, why


def _kind(variable: str) -> str:
    """What a variable holds, by how its name ends; the name itself if that does not tell."""
    return next((kind for end, kind in _KINDS if variable.upper().endswith(end)), variable)


def _in_words(needs: set[str]) -> str:
    words = sorted(needs)
    more = len(words) - NEEDS_SHOWN
    return f"needs {', '.join(words[:NEEDS_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _listed(skill: Skill, judged: Capability, warned: list[ContextWarning]) -> Iterator[Capability]:
    """What a skill provides, each under its name. A name that could be taken for a part of the list is not listed."""
    category = skill.category.strip() or GENERAL
    if not _plain(category):
        warned.append(
            ContextWarning(skill.origin, f"its category {category[:80]!r} is not shown: it is not a few plain words")
        )
        category = GENERAL
    for name in skill.provides or (skill.name,):
        if _plain(name):
            yield msgspec.structs.replace(judged, name=name, category=category)
        else:
            warned.append(
                ContextWarning(skill.origin, f"its capability {name[:80]!r} is not listed: it is no plain name")
            )


def _plain(text: str) -> bool:
    return len(text) <= 64 and _WORDS.fullmatch(text) is not None
