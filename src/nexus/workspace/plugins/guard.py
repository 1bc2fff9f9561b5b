"""Plugin code run safely: with a timeout and error isolation, on private copies of values, its results validated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextvars import copy_context
from itertools import islice
from threading import Thread
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from nexus.errors import BadTool
from nexus.text.one_line import collapse_whitespace, json_line
from nexus.types.block import Block, ContextWarning
from nexus.types.decoding import decodable
from nexus.types.profile import Profile
from nexus.types.request import Request
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.files.reader import FILE_CHARS
from nexus.workspace.source_context import SourceContext

ERROR_CHARS = 200  # maximum length of a reported error text
OMITTED = ": omitted"  # end of a warning about a call whose result the context does without
MAX_ITEMS = 1_000  # sources, tools, profiles or blocks that are read from one result
NAME_CHARS = 80
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class InvalidHookResult(Exception):
    """A hook returned an invalid value; the text continues a sentence that starts with the hook's name."""


class Guard:
    """Calls plugin functions in threads, with a timeout in milliseconds; 0 waits without limit.

    A thread cannot be stopped: it ends with the program. A function that has not returned is not called again before it
    has, so that one hanging hook costs one thread.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._running: dict[tuple[str, str], Thread] = {}

    def call(
        self, plugin: str, label: str, work: Callable[[], T], *, timeout_ms: int | None = None
    ) -> tuple[T | None, ContextWarning | None]:
        """Return the result of `work`, or None and a warning that names plugin and label (the hook or source)."""
        key = (plugin, label)
        source = f"hook:{plugin}"
        running = self._running.pop(key, None)
        if running is not None and running.is_alive():
            self._running[key] = running
            return None, ContextWarning(source, f"{label} still running since an earlier call: not called again")
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:  # noqa: BLE001 - the waiting thread reports it, whatever it is
                errors.append(error)

        thread = Thread(target=copy_context().run, args=(run,), name=f"{source} {label}", daemon=True)
        thread.start()
        if timeout_ms is None:
            limit_ms = self.timeout_ms
        else:
            limit_ms = timeout_ms
        thread.join(limit_ms / 1000 if limit_ms > 0 else None)
        if errors:
            return None, ContextWarning(source, f"{label} {describe_error(errors[0])}{OMITTED}")
        if not results:
            self._running[key] = thread
            return None, ContextWarning(source, f"{label} took longer than {limit_ms:,} ms{OMITTED}")
        return results[0], None


def describe_error(error: BaseException) -> str:
    """Return an error's type and the beginning of its text, on one line, to follow the name of the failed call."""
    try:
        text = collapse_whitespace(str(error))[:ERROR_CHARS]
    except Exception as failure:  # noqa: BLE001 - str() runs code of the plugin's exception class
        text = f"(its text raises {type(failure).__name__})"
    if isinstance(error, InvalidHookResult):
        return text
    if text:
        return f"raised {type(error).__name__}: {text}"
    return f"raised {type(error).__name__}"


def private_request(request: Request) -> Request:
    """Return the request with copies of its mutable values, so that a hook cannot change another one's request."""
    event = replace(request.event, hook_data=_copied(request.event.hook_data), metadata=_copied(request.event.metadata))
    settings = replace(
        request.settings,
        user_profile=_copied(request.settings.user_profile),
        model_config=_copied(request.settings.model_config),
        blocks=dict(request.settings.blocks),
    )
    return replace(request, event=event, tools=_copied(request.tools), settings=settings)


def private_source_context(context: SourceContext) -> SourceContext:
    """Return the source context with copies of its mutable values."""
    workspace = dataclasses.replace(context.workspace, host=dict(context.workspace.host))
    request = private_request(context.request)
    skills = list(context.skills_cache)
    return dataclasses.replace(context, request=request, workspace=workspace, skills_cache=skills)


def validate_named(
    result: object, names_in_use: Collection[str], kind: str, expected: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the values whose names are valid and free, and problems with the others."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in islice(_mapping(result, expected).items(), MAX_ITEMS):
        if not isinstance(name, str) or not name or len(name) > NAME_CHARS or not name.isprintable():
            problems.append(f"{kind} {str(name)[:NAME_CHARS]!r} omitted: invalid name")
        elif kind == "source" and not callable(value):
            problems.append(f"source {name!r} omitted: not a function but {type(value).__name__}")
        elif name in names_in_use:
            problems.append(f"{kind} {name!r} omitted: another {kind} has the same name")
        else:
            values[name] = value
    return values, problems


def validate_sources(result: object, names_in_use: Collection[str]) -> tuple[dict[str, Callable[..., Any]], list[str]]:
    """Return the functions whose names are valid and free, and problems with the others."""
    return validate_named(result, names_in_use, "source", "functions by name")


def validate_event_metadata(result: object) -> dict[str, Any]:
    """Return the values as JSON copies. Raises InvalidHookResult if one has no JSON form."""
    try:
        return json.loads(json_line(_mapping(result, "values by name")))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidHookResult(f"returned a value without JSON form: {error}") from error


def validate_tools(result: object, existing: Mapping[str, ToolSpec]) -> tuple[list[ToolSpec], list[str]]:
    """Return the tools whose names are free, and problems with the others; an equal existing tool is no problem."""
    tools: dict[str, ToolSpec] = {}
    problems: list[str] = []
    for definition in _items(result, "tool definitions"):
        try:
            specs = canonical([json.loads(json_line(_mapping(definition, "a tool's definition")))])
        except (BadTool, TypeError, ValueError, AttributeError, InvalidHookResult) as error:
            problems.append(f"tool omitted: {collapse_whitespace(str(error))[:200]}")
            continue
        for spec in specs:
            if spec.name not in existing and spec.name not in tools:
                tools[spec.name] = spec
            elif existing.get(spec.name) != spec:
                problems.append(f"tool {spec.name!r} omitted: another tool has the same name")
    return list(tools.values()), problems


def validate_profiles(result: object, names_in_use: Collection[str]) -> tuple[dict[str, Profile], list[str]]:
    """Return the profiles whose names are free, and problems with the others."""
    profiles: dict[str, Profile] = {}
    problems: list[str] = []
    for value in _items(result, "profiles"):
        profile = _checked(value, Profile)
        if not profile.name or profile.name in names_in_use or profile.name in profiles:
            problems.append(f"profile {profile.name[:NAME_CHARS]!r} omitted: name empty or taken")
        else:
            profiles[profile.name] = profile
    return profiles, problems


def validate_blocks(result: object, plugin: str, source: str) -> tuple[list[Block], list[ContextWarning]]:
    """Return a source's result as blocks labeled with the plugin, each within the size cap of files, and warnings.

    Text becomes a block of the Workspace layer with trust `tool`. Only Nexus itself is trusted as `system`.
    """
    origin = f"hook:{plugin}/{source}"
    if result is None:
        return [], []
    blocks: list[Block] = []
    warnings: list[ContextWarning] = []
    for item in [result] if isinstance(result, (str, Block)) else _items(result, "blocks"):
        if isinstance(item, str):
            block = Block("Workspace", source, item, origin)
        else:
            block = _checked(item, Block)
        if isinstance(item, str) or block.trust == "system":
            trust = "tool"
        else:
            trust = block.trust
        name = collapse_whitespace(block.name)[:NAME_CHARS] or source
        block = replace(block, source=origin, trust=trust, name=name)
        excess = len(block.text) - FILE_CHARS
        if excess > 0:
            line = f"[{excess:,} more characters of {source} left out (cap {FILE_CHARS:,})]"
            text = f"{block.text[:FILE_CHARS]}\n{line}"
            block = replace(block, text=text, omitted_chars=block.omitted_chars + excess)
            warnings.append(ContextWarning(origin, f"{excess:,} characters omitted: the cap is {FILE_CHARS:,}"))
        if block.text.strip():
            blocks.append(block)
    return blocks, warnings


def call_hook(
    call: Callable[..., Any], read: Callable[[Any], T], request: Request | None = None, **arguments: Any
) -> T | None:
    """Call a hook with a private copy of the request; return the validated result, or None if it has none."""
    if request is not None:
        arguments["request"] = private_request(request)
    result = call(**arguments)
    if result is None:
        return None
    return read(result)


def _mapping(value: object, expected: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidHookResult(f"returned {type(value).__name__} and not {expected}")
    return dict(cast("Mapping[Any, Any]", value))


def _items(value: object, expected: str) -> list[Any]:
    # A set has another order in each process, so the prompt would have other bytes.
    if isinstance(value, (str, bytes, Mapping, AbstractSet)) or not isinstance(value, Iterable):
        raise InvalidHookResult(f"returned {type(cast('object', value)).__name__} and not a list of {expected}")
    return list(islice(cast("Iterable[Any]", value), MAX_ITEMS))


def _checked(value: object, kind: type[S]) -> S:
    """Return the value with its field types checked, which the constructor of a Struct does not do."""
    if not isinstance(value, kind):
        raise InvalidHookResult(f"returned {type(value).__name__} and not a {kind.__name__}")
    try:
        return msgspec.convert(msgspec.to_builtins(value), decodable(kind))
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidHookResult(f"returned an invalid {kind.__name__}: {error}") from error


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        items = [_copied(item) for item in cast("list[Any]", value)]
        if isinstance(value, list):
            return items
        return tuple(items)
    return value
