"""A policy from its TOML text. What is not understood is an error that names the key: nothing is passed over."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from nexus.errors import BadPolicy, BadSessionKey
from nexus.policy.decision import toolset_named
from nexus.policy.values import Default, Policy, Principal, RoleRule, Toolset
from nexus.types import session_key
from nexus.types.request import AgentRole

TABLES = ("toolsets", "principals", "roles", "categories", "default")

MOST_CHARS = 256
"""The longest name, permission or pattern."""

ROLES: tuple[AgentRole, ...] = get_args(AgentRole)

_PATTERN = re.compile(r"[A-Za-z0-9_*?-]{1,64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_PLACE = re.compile(r" - at `\$(.*)`\Z")
_UNKNOWN = re.compile(r"unknown field `(.*)`")
T = TypeVar("T", bound=Struct)


def parse_policy(text: str, name: str) -> Policy:
    """The policy of a file's text; `name` is the file as errors and explanations call it. Raises BadPolicy."""
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadPolicy(name, "", f"TOML ({error})") from error
    strange = next((key for key in found if key not in TABLES), None)
    if strange is not None:
        raise BadPolicy(name, _quoted(strange), f"one of the tables {', '.join(TABLES)}")
    default = found.get("default")
    read = Policy(
        name,
        dict(_table(found, "toolsets", Toolset, name)),
        dict(_table(found, "principals", Principal, name)),
        cast("dict[AgentRole, RoleRule]", dict(_table(found, "roles", RoleRule, name))),
        {key: _texts(value, f"categories.{_quoted(key)}", name) for key, value in _parts(found, "categories", name)},
        _converted(default, Default, "default", name) if default is not None else None,
    )
    for key, expected in _wrong(read):
        raise BadPolicy(name, key, expected)
    return read


def merge_policies(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """The policies, every toolset that one names being there: in itself, or in one before it. Raises BadPolicy."""
    for place, policy in enumerate(policies, 1):
        for key, toolset in _named(policy):
            if toolset_named(toolset, policies[:place]) is None:
                there = sorted({one for known in policies[:place] for one in known.toolsets})
                known = f"one of {', '.join(there)}" if there else "one, and no toolset is defined"
                raise BadPolicy(policy.name, key, f"the name of a toolset, {known}; {toolset!r} is not there")
    return tuple(policies)


def _named(policy: Policy) -> Iterator[tuple[str, str]]:
    """The keys that name a toolset, with the names."""
    for name, principal in policy.principals.items():
        if principal.toolset:
            yield f"principals.{_quoted(name)}.toolset", principal.toolset
    for role, rule in policy.roles.items():
        if rule.toolset:
            yield f"roles.{role}.toolset", rule.toolset
    if policy.default is not None:
        yield "default.toolset", policy.default.toolset


def _wrong(policy: Policy) -> Iterator[tuple[str, str]]:
    """What is of the right type and still no rule: the key, and what is expected there."""
    for name, toolset in policy.toolsets.items():
        key = f"toolsets.{_quoted(name)}"
        if not _NAME.match(name):
            yield key, "a name of letters, digits, `_`, `.` and `-`, at most 64"
        yield from _no_patterns(f"{key}.tools", toolset.tools)
        yield from _no_patterns(f"{key}.deny", toolset.deny)
        yield from _no_words(f"{key}.categories", toolset.categories)
        yield from _no_words(f"{key}.capabilities", toolset.capabilities or ())
    for name, patterns in policy.categories.items():
        yield from _no_patterns(f"categories.{_quoted(name)}", patterns)
    for role, rule in policy.roles.items():
        if role not in ROLES:
            yield f"roles.{_quoted(role)}", f"one of the roles {', '.join(ROLES)}"
        yield from _no_patterns(f"roles.{role}.deny", rule.deny)
    for name, principal in policy.principals.items():
        yield from _no_principal(name, principal, policy.default)
    if policy.default is not None:
        yield from _no_words("default.permissions", policy.default.permissions or ())


def _no_principal(name: str, principal: Principal, default: Default | None) -> Iterator[tuple[str, str]]:
    key = f"principals.{_quoted(name)}"
    if not _plain(name):
        yield key, f"a name as the platform gives it: at most {MOST_CHARS} characters, none of control"
    if "*" in name:
        yield key, "one principal by its name; `*` stands for nobody here, and [default] for all others"
    if not principal.toolset and default is None:
        yield f"{key}.toolset", "the name of a toolset, as there is no [default]"
    yield from _no_words(f"{key}.permissions", principal.permissions or ())
    role = principal.role or (default.role if default is not None else None) or "unified"
    try:
        if principal.person:
            session_key.key("dm", principal.person)
    except BadSessionKey as error:
        yield f"{key}.person", f"another one: {error}"
    try:
        if principal.session:
            session_key.check(principal.session, role)
    except BadSessionKey as error:
        yield f"{key}.session", f"another one: {error}"


def _no_patterns(key: str, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        if not _PATTERN.match(pattern):
            yield key, f"names of tools, where `*` and `?` stand for others; {pattern[:80]!r} can match none"


def _no_words(key: str, words: Iterable[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        if not _plain(word):
            yield key, f"names on one line, at most {MOST_CHARS} characters; not {word[:80]!r}"


def _plain(text: str) -> bool:
    """Whether a text can stand on a line of its own, and says something."""
    visible = not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)
    return bool(text.strip()) and visible and len(text) <= MOST_CHARS


def _parts(found: Mapping[str, Any], table: str, name: str) -> list[tuple[str, Any]]:
    """The keys and values of a table of the file; none if it is not there."""
    given = found.get(table, {})
    if not isinstance(given, dict):
        raise BadPolicy(name, table, f"a table, [{table}.NAME], not {_kind(given)}")
    return list(cast("dict[str, Any]", given).items())


def _table(found: Mapping[str, Any], table: str, kind: type[T], name: str) -> Iterator[tuple[str, T]]:
    for key, value in _parts(found, table, name):
        yield key, _converted(value, kind, f"{table}.{_quoted(key)}", name)


def _converted(value: Any, kind: type[T], key: str, name: str) -> T:
    """A table as its value. Raises BadPolicy, which names the key in it."""
    if not isinstance(value, dict):
        raise BadPolicy(name, key, f"a table with {', '.join(kind.__struct_fields__)}, not {_kind(value)}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        unknown, place = _UNKNOWN.search(text), _PLACE.search(text)
        if unknown:
            expected = f"one of {', '.join(kind.__struct_fields__)}"
            raise BadPolicy(name, f"{key}.{_quoted(unknown[1])}", expected) from error
        where = f"{key}{place[1]}" if place else key
        said = _PLACE.sub("", text)
        raise BadPolicy(name, where, f"{said[:1].lower()}{said[1:]}".removeprefix("expected ")) from error


def _texts(value: Any, key: str, name: str) -> tuple[str, ...]:
    try:
        return msgspec.convert(value, tuple[str, ...])
    except msgspec.ValidationError as error:
        other = f"not {_kind(value)}" if not isinstance(value, list) else "and nothing else in it"
        raise BadPolicy(name, key, f"a list of names of tools, {other}") from error


def _kind(value: object) -> str:
    kinds: dict[type, str] = {str: "text", int: "a number", list: "a list", bool: "a truth value", dict: "a table"}
    return kinds.get(type(value), "another value")


def _quoted(key: str) -> str:
    """A key as TOML has it, shortened."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,80}", key) else msgspec.json.encode(key[:80]).decode()
