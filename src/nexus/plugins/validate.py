"""What hooks return, made into values that are safe to use, or refused with a reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nexus.errors import BadTool
from nexus.plugins.guard import InvalidHookResult
from nexus.text.one_line import collapse_whitespace, json_line
from nexus.types.block import Block, ContextWarning
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.files.reader import FILE_CHARS
from nexus.workspace.source_context import SourceContext

MOST = 1_000
"""Sources, tools, profiles or blocks that are taken of one answer."""

NAME_CHARS = 80
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def private_request(request: Request) -> Request:
    """The request with copies of all that could be changed in it: what a hook does to them concerns nobody else."""
    event = replace(request.event, hook_data=_copied(request.event.hook_data), metadata=_copied(request.event.metadata))
    identity = replace(request.identity, user_profile=_copied(request.identity.user_profile))
    tools, settings = _copied(request.tools), _copied(request.model_config)
    blocks = dict(request.blocks)
    return replace(request, event=event, identity=identity, tools=tools, model_config=settings, blocks=blocks)


def private_source_context(desk: SourceContext) -> SourceContext:
    """The same for what a source is given."""
    around = dataclasses.replace(desk.workspace, host=dict(desk.workspace.host))
    seen = list(desk.skills_cache)
    return dataclasses.replace(desk, request=private_request(desk.request), workspace=around, skills_cache=seen)


def validate_sources(answer: object, taken: Collection[str]) -> tuple[dict[str, Callable[..., Any]], list[str]]:
    """The functions by the names that are free, and what to say about the others."""
    found: dict[str, Callable[..., Any]] = {}
    notes: list[str] = []
    for name, function in islice(_dict(answer, "functions by name").items(), MOST):
        if not isinstance(name, str) or not name or len(name) > NAME_CHARS or not name.isprintable():
            notes.append(f"a source of the name {str(name)[:NAME_CHARS]!r} is left out: that is no name")
        elif not callable(function):
            notes.append(f"source {name!r} is left out: it is {_kind(function)} and no function")
        elif name in taken:
            notes.append(f"source {name!r} is left out: another one has that name")
        else:
            found[name] = function
    return found, notes


def validate_event_metadata(answer: object) -> dict[str, Any]:
    """The values as plain copies. Raises UnfitAnswer where one of them is no JSON value."""
    try:
        return json.loads(json_line(_dict(answer, "values by name")))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidHookResult(f"returned what is no JSON: {error}") from error


def validate_tools(answer: object, taken: Mapping[str, ToolSpec]) -> tuple[list[ToolSpec], list[str]]:
    """The tools whose names are free, and what to say about the others; nothing about one that is there already."""
    found: dict[str, ToolSpec] = {}
    notes: list[str] = []
    for given in _each(answer, "tool definitions"):
        try:
            specs = canonical([json.loads(json_line(_dict(given, "a tool's definition")))])
        except (BadTool, TypeError, ValueError, AttributeError, InvalidHookResult) as error:
            notes.append(f"a tool is left out: {collapse_whitespace(str(error))[:200]}")
            continue
        for spec in specs:
            if spec.name not in taken and spec.name not in found:
                found[spec.name] = spec
            elif taken.get(spec.name) != spec:
                notes.append(f"tool {spec.name!r} is left out: another one has that name")
    return list(found.values()), notes


def validate_profiles(answer: object, taken: Collection[str]) -> tuple[dict[str, Profile], list[str]]:
    """The profiles whose names are free, and what to say about the others."""
    found: dict[str, Profile] = {}
    notes: list[str] = []
    for given in _each(answer, "profiles"):
        profile = _checked(given, Profile)
        if not profile.name or profile.name in taken or profile.name in found:
            notes.append(
                f"profile {profile.name[:NAME_CHARS]!r} is left out: another one has that name, or it has none"
            )
        else:
            found[profile.name] = profile
    return found, notes


def validate_blocks(answer: object, plugin: str, source: str) -> tuple[list[Block], list[ContextWarning]]:
    """What a source returned, as blocks that say where they come from, each within the cap of a file.

    A text is a block of the Workspace layer. Only Nexus itself is trusted as `system`.
    """
    origin = f"hook:{plugin}/{source}"
    if answer is None:
        return [], []
    given = [answer] if isinstance(answer, (str, Block)) else _each(answer, "blocks")
    blocks: list[Block] = []
    warned: list[ContextWarning] = []
    for one in given:
        block = Block("Workspace", source, one, origin) if isinstance(one, str) else _checked(one, Block)
        trust = "tool" if isinstance(one, str) or block.trust == "system" else block.trust
        name = collapse_whitespace(block.name)[:NAME_CHARS] or source
        block = replace(block, source=origin, trust=trust, name=name)
        over = len(block.text) - FILE_CHARS
        if over > 0:
            line = f"[{over:,} more characters of {source} left out (cap {FILE_CHARS:,})]"
            left_out = block.omitted_chars + over
            block = replace(block, text=f"{block.text[:FILE_CHARS]}\n{line}", omitted_chars=left_out)
            warned.append(ContextWarning(origin, f"{over:,} characters left out: the cap is {FILE_CHARS:,}"))
        if block.text.strip():
            blocks.append(block)
    return blocks, warned


def call_hook(
    ask: Callable[..., Any], read: Callable[[Any], T], request: Request | None = None, **more: Any
) -> T | None:
    """A hook's answer as `read` makes it; None if it has none. The request that the hook gets is its own."""
    given = {} if request is None else {"request": private_request(request)}
    answer = ask(**given, **more)
    return None if answer is None else read(answer)


def _dict(answer: object, what: str) -> dict[Any, Any]:
    if not isinstance(answer, Mapping):
        raise InvalidHookResult(f"returned {_kind(answer)} and not {what}")
    return dict(cast("Mapping[Any, Any]", answer))


def _each(answer: object, what: str) -> list[Any]:
    kind = _kind(answer)
    # A set has another order in each process, and the prompt would have other bytes.
    if isinstance(answer, (str, bytes, Mapping, AbstractSet)) or not isinstance(answer, Iterable):
        raise InvalidHookResult(f"returned {kind} and not a list of {what}")
    return list(islice(cast("Iterable[Any]", answer), MOST))


def _kind(value: object) -> str:
    return type(value).__name__


def _checked(given: object, kind: type[S]) -> S:
    """The value with the types of its fields checked, which making it does not do."""
    if not isinstance(given, kind):
        raise InvalidHookResult(f"returned {_kind(given)} where a {kind.__name__} belongs")
    try:
        return msgspec.convert(msgspec.to_builtins(given), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidHookResult(f"returned a {kind.__name__} that is none: {error}") from error


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = [_copied(item) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    return value
