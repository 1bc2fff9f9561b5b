"""What a tool's definition says of the tool itself, whichever provider's form it has: name, category, roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

OWN = "x-nexus"
"""The key of a definition under which `category` and `roles` may stand; they may also stand beside the name."""

_KEYS = ("category", "roles")


class Offered(Struct, frozen=True):
    """A tool as a policy sees it. `category` is empty if none is said; no `roles` means all of them."""

    name: str
    category: str = ""
    roles: tuple[str, ...] = ()


def each(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The definitions one tool at a time: Gemini's form may have several in one."""
    for given in definitions:
        yield from given.get("function_declarations") or given.get("functionDeclarations") or (given,)


def inner(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a tool's definition that has its name: OpenAI's form has it under `function`."""
    return definition.get("function") or definition


def offered(definition: Mapping[str, Any]) -> Offered | None:
    """The tool that a definition of one tool is of; None if it has no name."""
    if not isinstance(definition, Mapping):
        return None
    own = inner(definition)
    name = own.get("name") if own is definition or isinstance(own, Mapping) else None
    if not isinstance(name, str):
        return None
    said: dict[str, object] = {}
    for place in (definition,) if own is definition else (definition, own):
        beside = place.get(OWN)
        said.update({key: place[key] for key in _KEYS if key in place})
        if isinstance(beside, Mapping):
            under = cast("Mapping[str, object]", beside)
            said.update({key: under[key] for key in _KEYS if key in under})
    if not said:
        return Offered(name)
    category, roles = said.get("category"), said.get("roles")
    several = (
        cast("Iterable[object]", roles) if isinstance(roles, (list, tuple)) else (() if roles is None else (roles,))
    )
    return Offered(name, category if isinstance(category, str) else "", tuple(map(str, several)))
