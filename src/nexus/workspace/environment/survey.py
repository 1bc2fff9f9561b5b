"""Survey of the environment: skills, the programs, variables and credentials that they require, and their use.

A survey is taken at a session's start, at a compaction and on request, and cached in between (document 002): the system
slot must not change because a program was installed meanwhile.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from nexus.errors import CredentialError
from nexus.types.block import ContextWarning
from nexus.types.environment import Capability, CapabilityState, Environment
from nexus.types.skill import Skill
from nexus.workspace.credentials.index import CredentialEntry, is_name, is_valid_for, is_variable
from nexus.workspace.credentials.store import Credentials
from nexus.workspace.environment.machine import EnvironmentSnapshot, Probe, is_program
from nexus.workspace.skills.discovery import used_skills
from nexus.workspace.source_context import EngineWorkspace
from nexus.workspace.sources.skills import discover_skills

GENERAL = "General"  # category of skills that name none
MAX_SNAPSHOTS = 256
NEEDS_SHOWN = 3

_WORDS = re.compile(r"\w[\w.+#/&-]*(?: [\w.+#/&-]+)*")
_BEST: tuple[CapabilityState, ...] = ("active", "ready", "setup", "broken")
_KINDS = (("API_KEY", "API key"), ("APIKEY", "API key"), ("KEY", "key"), ("TOKEN", "token"), ("PASSWORD", "password"))


@dataclass(slots=True)
class Surveys:
    """LRU cache of snapshots by session and by the compaction since which they are valid.

    `look` takes a snapshot at a time. A session that is not stored yet is identified by its label, then by its thread.
    """

    look: Callable[[int], EnvironmentSnapshot]
    _snapshots: OrderedDict[tuple[int | str, int], EnvironmentSnapshot] = field(
        default_factory=OrderedDict[tuple["int | str", int], EnvironmentSnapshot]
    )

    def of(self, session: str, thread: int | None, mark: int, at_ms: int = 0) -> EnvironmentSnapshot:
        """Return the snapshot of a session's thread since its compaction `mark` (an entry's seq, 0 for none).

        A new one is taken for `at_ms`, the time of the call.
        """
        key = (session if thread is None else thread, mark)
        snapshot = self._snapshots.pop(key, None) or (self._snapshots.pop((session, 0), None) if not mark else None)
        self._snapshots[key] = snapshot = snapshot or self.look(at_ms)
        while len(self._snapshots) > MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return snapshot

    def forget(self) -> None:
        """Drop all snapshots, so that each session's next call takes a new one."""
        self._snapshots.clear()


def survey(workspace: EngineWorkspace, credentials: Credentials, now_ms: int, probe: Probe) -> Environment:
    """Return the current environment. Runs no program, asks no keyring, keeps no value; unreadable files are warnings."""
    skills = discover_skills(workspace).skills
    used, warnings = used_skills(workspace.files.root) if workspace.files is not None else ({}, [])
    try:
        entries = credentials.entries(declared_credentials(skills))
    except CredentialError as error:
        entries = {}
        warnings.append(ContextWarning("nexus:credentials", str(error)))
    best: dict[tuple[str, str], Capability] = {}
    for skill in sorted(skills, key=lambda skill: skill.name):
        needs, why = _missing(skill, probe, entries)
        required = [entries[name] for name in sorted(set(skill.requires.credentials)) if name in entries]
        rejected = [entry.name for entry in required if entry.state == "broken"]
        is_checked = bool(required) and all(entry.state == "ok" for entry in required)
        state: CapabilityState = "ready"
        if needs:
            state = "setup"
        elif rejected:
            state = "broken"
        elif skill.name in used or is_checked:
            state = "active"
        more = ""
        if len(needs) > NEEDS_SHOWN:
            more = f" and {len(needs) - NEEDS_SHOWN} more"
        capability = Capability(
            name="",
            category="",
            state=state,
            needs=f"needs {', '.join(sorted(needs)[:NEEDS_SHOWN])}{more}" if needs else "",
            skill=skill.name,
            why=(*why, *(f"credential {name} is marked as broken" for name in rejected)),
            credentials=tuple(entry.name for entry in required if entry.state != "missing"),
        )
        category = skill.category.strip() or GENERAL
        if not _is_plain(category):
            text = f"category {category[:80]!r} not shown: not a few plain words"
            warnings.append(ContextWarning(skill.origin, text))
            category = GENERAL
        for name in skill.provides or (skill.name,):
            # A name with a separator of the environment block could pass for several capabilities.
            if not _is_plain(name):
                warnings.append(ContextWarning(skill.origin, f"capability {name[:80]!r} not listed: not a plain name"))
                continue
            other = best.get((category, name))
            if other is None or _BEST.index(capability.state) < _BEST.index(other.state):
                best[category, name] = replace(capability, name=name, category=category)
    configured = {name: entry for name, entry in entries.items() if entry.state != "missing"}
    broken = tuple(name for name, entry in configured.items() if entry.state == "broken")
    return Environment(tuple(best[key] for key in sorted(best)), len(configured), broken, now_ms, tuple(warnings))


def declared_credentials(skills: Iterable[Skill]) -> dict[str, tuple[str, ...]]:
    """Return the credentials that skills require, sorted, each with the variables that these skills declare for it."""
    variables: dict[str, set[str]] = {}
    for skill in skills:
        for name in filter(is_name, skill.requires.credentials):
            matching = (key for key in skill.requires.env if is_variable(key) and is_valid_for(key, name))
            variables.setdefault(name, set()).update(matching)
    return {name: tuple(sorted(variables[name])) for name in sorted(variables)}


def _missing(skill: Skill, probe: Probe, credentials: Mapping[str, CredentialEntry]) -> tuple[set[str], list[str]]:
    """Return a skill's missing requirements, as short labels for the model and as sentences for the user."""
    needs, why = _missing_programs(skill, probe)
    unset = [name for name in sorted(set(skill.requires.env)) if not probe.variable(name)]
    for variable in unset:
        kind = next((kind for end, kind in _KINDS if variable.upper().endswith(end)), variable)
        is_valid = is_variable(variable)
        needs.add(kind if is_valid else "a variable")
        why.append(f"variable {variable} is not set" if is_valid else f"{variable!r} is not a valid variable name")
    for name in sorted(set(skill.requires.credentials)):
        is_configured = name in credentials and credentials[name].state != "missing"
        if not is_name(name):
            needs.add("a credential")
            why.append(f"{name!r} is not a valid credential name")
        # A missing variable of the credential was reported above.
        elif not is_configured and not any(is_valid_for(variable, name) for variable in unset):
            needs.add(f"{name} credential")
            why.append(f"credential {name} is not configured")
    return needs, why


def _is_plain(text: str) -> bool:
    return len(text) <= 64 and _WORDS.fullmatch(text) is not None


def _missing_programs(skill: Skill, probe: Probe) -> tuple[set[str], list[str]]:
    """Return a skill's missing programs, as `_missing`."""
    needs: set[str] = set()
    why: list[str] = []
    for program in sorted(set(skill.requires.bins)):
        if not is_program(program):
            needs.add("a program")
            why.append(f"{program!r} is not a valid program name")
        elif not probe.program(program):
            needs.add(program)
            why.append(f"program {program} is not on the path")
    alternatives = [program for program in skill.requires.any_bins if is_program(program)]
    if skill.requires.any_bins and not any(map(probe.program, alternatives)):
        needs.add(" or ".join(alternatives) or "a program")
        why.append(f"none of the programs {', '.join(alternatives) or '(no valid names)'} is on the path")
    return needs, why
