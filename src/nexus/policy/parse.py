"""Policies from TOML text. Every unknown key or invalid value is an error that names the key."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import Struct

from nexus.errors import BadSetting, bad_policy
from nexus.policy.decision import find_toolset
from nexus.policy.values import Default, Policy, Principal, RoleRule, Toolset
from nexus.types import session_key
from nexus.types.decoding import decodable
from nexus.types.settings import AgentRole
from nexus.types.validation import parse_toml

TABLES = ("toolsets", "principals", "roles", "categories", "default")

MOST_CHARS = 256  # maximum length of a name, permission or pattern

ROLES: tuple[AgentRole, ...] = get_args(AgentRole)

_PATTERN = re.compile(r"[A-Za-z0-9_*?-]{1,64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_PATH = re.compile(r" - at `\$(.*)`\Z")
_UNKNOWN = re.compile(r"unknown field `(.*)`")
T = TypeVar("T", bound=Struct)


def parse_policy(text: str, name: str) -> Policy:
    """Parse a policy file's TOML text; `name` is the file's in errors and explanations. Raises BadConfig."""
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise bad_policy(name, "", f"TOML ({error})") from error
    unknown = next((key for key in tables if key not in TABLES), None)
    if unknown is not None:
        raise bad_policy(name, _quoted(unknown), f"one of the tables {', '.join(TABLES)}")
    toolsets = _converted_items(tables, "toolsets", Toolset, name)
    principals = _converted_items(tables, "principals", Principal, name)
    roles = cast("dict[AgentRole, RoleRule]", _converted_items(tables, "roles", RoleRule, name))
    categories: dict[str, tuple[str, ...]] = {}
    for key, value in _items(tables, "categories", name):
        try:
            categories[key] = msgspec.convert(value, tuple[str, ...])
        except msgspec.ValidationError as error:
            if isinstance(value, list):
                got = " with text only"
            else:
                got = f", not {_type_name(value)}"
            raise bad_policy(name, f"categories.{_quoted(key)}", f"a list of tool names{got}") from error
    table = tables.get("default")
    default = None
    if table is not None:
        default = _converted(table, Default, "default", name)
    policy = Policy(name, toolsets, principals, roles, categories, default)
    for key, expected in _violations(policy):
        raise bad_policy(name, key, expected)
    return policy


def merge_policies(policies: Sequence[Policy]) -> tuple[Policy, ...]:
    """Check that each toolset a policy refers to is defined in it or in an earlier one. Raises BadConfig."""
    for count, policy in enumerate(policies, 1):
        rows = {f"principals.{_quoted(key)}.toolset": row.toolset for key, row in policy.principals.items()}
        rows |= {f"roles.{role}.toolset": rule.toolset for role, rule in policy.roles.items()}
        rows |= {"default.toolset": policy.default.toolset} if policy.default is not None else {}
        for key, toolset in rows.items():
            # A default without a toolset is an error; a principal or role without one has no reference.
            if (toolset or key == "default.toolset") and find_toolset(toolset, policies[:count]) is None:
                names = ", ".join(sorted({name for definer in policies[:count] for name in definer.toolsets}))
                expected = "a toolset (none is defined)"
                if names:
                    expected = f"one of the toolsets {names}"
                raise bad_policy(policy.name, key, f"{expected}, not {toolset!r}")
    return tuple(policies)


def _violations(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield values of the right type that are invalid: the key, and the expected value."""
    for name, toolset in policy.toolsets.items():
        key = f"toolsets.{_quoted(name)}"
        if not _NAME.match(name):
            yield key, "a name of letters, digits, `_`, `.` and `-`, at most 64 characters"
        yield from _pattern_violations(f"{key}.tools", toolset.tools)
        yield from _pattern_violations(f"{key}.deny", toolset.deny)
        yield from _text_violations(f"{key}.categories", toolset.categories)
        yield from _text_violations(f"{key}.capabilities", toolset.capabilities or ())
    for name, patterns in policy.categories.items():
        yield from _pattern_violations(f"categories.{_quoted(name)}", patterns)
    for role, rule in policy.roles.items():
        if role not in ROLES:
            yield f"roles.{_quoted(role)}", f"one of the roles {', '.join(ROLES)}"
        yield from _pattern_violations(f"roles.{role}.deny", rule.deny)
    for name, principal in policy.principals.items():
        yield from _principal_violations(name, principal, policy.default)
    if policy.default is not None:
        yield from _text_violations("default.permissions", policy.default.permissions or ())


def _principal_violations(name: str, principal: Principal, default: Default | None) -> Iterator[tuple[str, str]]:
    key = f"principals.{_quoted(name)}"
    if not _is_one_line(name):
        yield key, f"a principal's name: at most {MOST_CHARS} characters without control characters"
    if "*" in name:
        yield key, "the name of a single principal (patterns are not supported, use [default])"
    if not principal.toolset and default is None:
        yield f"{key}.toolset", "the name of a toolset (required without [default])"
    yield from _text_violations(f"{key}.permissions", principal.permissions or ())
    role = principal.role or (default.role if default is not None else None) or "unified"
    try:
        if principal.person:
            session_key.key("dm", principal.person)
    except BadSetting as error:
        yield f"{key}.person", f"a valid session name ({error})"
    try:
        if principal.session:
            session_key.check(principal.session, role)
    except BadSetting as error:
        yield f"{key}.session", f"a valid session label ({error})"


def _pattern_violations(key: str, patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        if not _PATTERN.match(pattern):
            yield key, f"tool names with the wildcards `*` and `?`, not {pattern[:80]!r}"


def _text_violations(key: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        if not _is_one_line(text):
            yield key, f"names on one line, at most {MOST_CHARS} characters, not {text[:80]!r}"


def _is_one_line(text: str) -> bool:
    """Return whether a text is not empty, not too long, and free of control and invisible characters."""
    visible = not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)
    return bool(text.strip()) and visible and len(text) <= MOST_CHARS


def _items(tables: Mapping[str, Any], table: str, name: str) -> list[tuple[str, Any]]:
    """Return the keys and values of a table of the file; none if it is missing."""
    value = tables.get(table, {})
    if not isinstance(value, dict):
        raise bad_policy(name, table, f"a table, [{table}.NAME], not {_type_name(value)}")
    return list(cast("dict[str, Any]", value).items())


def _converted_items(tables: Mapping[str, Any], table: str, kind: type[T], name: str) -> dict[str, T]:
    return {key: _converted(value, kind, f"{table}.{_quoted(key)}", name) for key, value in _items(tables, table, name)}


def _converted(value: Any, kind: type[T], key: str, name: str) -> T:
    """Convert a table to a struct. Raises BadConfig, which names the invalid key."""
    if not isinstance(value, dict):
        raise bad_policy(name, key, f"a table with {', '.join(kind.__struct_fields__)}, not {_type_name(value)}")
    try:
        return msgspec.convert(value, decodable(kind))
    except msgspec.ValidationError as error:
        text = str(error)
        unknown = _UNKNOWN.search(text)
        path = _PATH.search(text)
        if unknown:
            expected = f"one of {', '.join(kind.__struct_fields__)}"
            raise bad_policy(name, f"{key}.{_quoted(unknown[1])}", expected) from error
        reason = _PATH.sub("", text)
        expected = f"{reason[:1].lower()}{reason[1:]}".removeprefix("expected ")
        raise bad_policy(name, f"{key}{path[1]}" if path else key, expected) from error


def _type_name(value: object) -> str:
    names: dict[type, str] = {str: "text", int: "a number", list: "a list", bool: "a truth value", dict: "a table"}
    return names.get(type(value), "another value")


def _quoted(key: str) -> str:
    """Return a key as TOML writes it, shortened."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,80}", key):
        return key
    return msgspec.json.encode(key[:80]).decode()
