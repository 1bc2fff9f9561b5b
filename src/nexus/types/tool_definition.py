"""Tool definitions: neutral specs, Nexus's metadata of a tool, and readers of the three provider dialects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from nexus.errors import BadTool
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_forms import SCHEMA_KEYS, OwnForm, ToolProvider, mapping, own_form, split_tools
from nexus.types.tool_schemas import usable_schema
from nexus.types.validation import check_json, has_lone_surrogates, json_copy

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
"""Names that all three providers accept."""


@runtime_checkable
class ToolSource(Protocol):
    """A registry of tools: `nexus.tools.ToolRegistry`, or any object with the method of that name."""

    def get_all_tool_definitions(self) -> Sequence[dict[str, Any]]:
        """Return the definitions, in any provider's dialect."""
        ...


class ToolList(tuple[dict[str, Any], ...]):  # noqa: SLOT001 - what is derived has its place in the instance
    """Usable definitions, whose owner nobody else is: what follows from them is derived once."""

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The definitions as specs (`canonical`)."""
        return _specs(self)

    @cached_property
    def rows(self) -> tuple[tuple[ToolMetadata | None, Mapping[str, Any]], ...]:
        """The definition of each tool, with its metadata (`tool_rows`)."""
        return tuple(_tool_rows(self))

    @cached_property
    def has_shell(self) -> bool:
        """Whether one of the tools runs commands (`offers_shell`)."""
        return any(map(_runs_commands, self.rows))


def tool_definitions(tools: Iterable[dict[str, Any]] | ToolSource) -> tuple[dict[str, Any], ...]:
    """Return the definitions, or a registry's, with categories and roles if it has the method `offers`.

    Raises BadTool if a registry returns anything else.
    """
    if isinstance(tools, ToolList):
        return tools
    if isinstance(tools, ToolSource):
        return check_definitions(getattr(tools, "offers", tools.get_all_tool_definitions)(), tools)
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        kind = type(cast("object", tools)).__name__
        raise BadTool(f"tools are {kind}, not a list of definitions or a registry")
    return tuple(tools)


def check_definitions(value: object, registry: object) -> tuple[dict[str, Any], ...]:
    """Return a registry's result as definitions. Raises BadTool if it is not a list of maps."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in cast("list[Any]", value)):
        raise BadTool(f"get_all_tool_definitions() of {type(registry).__name__} did not return a list of definitions")
    return tuple(dict(item) for item in cast("Sequence[Mapping[str, Any]]", value))


def usable_definitions(definitions: Iterable[object]) -> tuple[ToolList, list[str]]:
    """Return the definitions that can be sent, and a line for each tool that is omitted because it cannot.

    Equal definitions are one list, made of copies: their owner may change its own between two calls. A list often comes from an MCP server or a plugin, and one broken entry must not cost the call all the others. Raises
    BadTool for an entry of another type, and if no definition is usable.
    """
    if isinstance(definitions, ToolList):
        return definitions, []
    items = tuple(definitions)
    for wrong in (item for item in items if not isinstance(item, Mapping)):
        raise BadTool(
            f"tool definition is {type(wrong).__name__}, not a mapping (pass its name, description and schema)"
        )
    mappings = cast("tuple[Mapping[str, Any], ...]", items)
    try:
        tools = _tools_from_json(msgspec.json.encode(mappings))
        if tools is not None:
            return tools, []
    except (TypeError, ValueError, RecursionError):  # not plain JSON, or with lone surrogates
        pass
    usable: list[dict[str, Any]] = []
    problems: list[str] = []
    changes: list[str] = []
    for single in single_definitions(mappings):
        try:
            usable.append(_checked_definition(single))
        except BadTool as error:
            problems.append(str(error))
            continue
        if has_lone_surrogates(single):
            changes.append(f"text of tool {definition_name(single)!r} changed: half of a character is replaced")
    if problems and not usable:
        raise BadTool(problems[0] if len(problems) == 1 else f"no usable tool definition: {'; '.join(problems[:3])}")
    last = {_key(definition): index for index, definition in enumerate(usable)}
    distinct: list[dict[str, Any]] = []
    for index, definition in enumerate(usable):
        if last[_key(definition)] == index:
            distinct.append(definition)
        else:
            problems.append(f"tool {definition_name(definition)!r} is defined again further on")
    return ToolList(distinct), [*(f"omitted: {problem}" for problem in problems), *changes]


def _key(definition: Mapping[str, Any]) -> str:
    """Return the key that tools of one name share. A typed tool without a name is another one than a function of that name."""
    form = own_form(definition)
    is_nameless = bool(form.type_name) and not isinstance(form.fields.get("name"), str)
    if is_nameless:
        return f"{definition_name(definition)}:typed"
    return _full_name(definition)


def _full_name(definition: Mapping[str, Any]) -> str:
    return own_form(definition).type_name or str(function_schema(definition).get("name"))


@lru_cache(maxsize=32)  # every call of a session comes with the same definitions
def _tools_from_json(definitions: bytes) -> ToolList | None:
    """Return the definitions; None if one of them is unusable."""
    tools = ToolList(msgspec.json.decode(definitions))
    keys = set[str]()
    try:
        for definition in single_definitions(tools):
            keys_before = len(keys)
            key = _key(_checked_definition(definition))
            keys.add(key)
            if len(keys) == keys_before:
                return None
    except BadTool:
        return None
    return tools


def single_definitions(definitions: Iterable[Mapping[str, Any]]) -> Iterator[object]:
    """Yield definitions of one tool each, unchecked."""
    return (single for definition in definitions for single in split_tools(definition))


def _checked_definition(definition: object) -> dict[str, Any]:
    """Return a definition of one tool as plain JSON values. Raises BadTool, which names the tool."""
    name = definition_name(definition)
    try:
        plain = json_copy(definition)
    except (ValueError, RecursionError) as error:
        raise BadTool(
            f"tool {name!r} cannot be sent as JSON: {error}" if name else f"tool definition: {error}"
        ) from error
    if not isinstance(plain, dict):
        raise BadTool(f"tool definition is {type(definition).__name__}, not a mapping")
    result = cast("dict[str, Any]", plain)
    if not list(read_definition(result)):
        raise BadTool("tool definition declares no tool")
    return result


def definition_name(definition: object) -> str:
    """Return the name in a definition of one tool, shortened; empty if it has none."""
    fields = mapping(definition)
    function = fields.get("function")
    inner = fields
    if isinstance(function, Mapping):
        inner = cast("Mapping[str, Any]", function)
    name = inner.get("name")
    if isinstance(name, str):
        return sanitize_text(name[:80])
    return own_form(fields).type_name


def check_tool_name(name: object, definition: Mapping[str, Any]) -> str:
    """Return the name of a tool in a definition. Raises BadTool for one that a provider rejects."""
    if not isinstance(name, str) or not _NAME.match(name):
        text = f"tool definition {str(definition)[:80]!r} needs a name of letters, digits, '_' and '-', at most 64"
        raise BadTool(text)
    return name


def read_definition(definition: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, description and schema of each tool in a definition; a typed tool has no schema. Raises BadTool."""
    for single in iter_definitions([definition]):
        form = own_form(single)
        if form.type_name:
            yield form.type_name, str(form.fields.get("description") or ""), {}
            continue
        function: Mapping[str, Any] = function_schema(single)
        name = None
        if isinstance(function, Mapping):
            name = function.get("name")
        name = check_tool_name(name, definition)
        schema, note = _parameters(name, function)
        text = str(function.get("description") or "")
        yield name, f"{text}\n\n{note}".strip() if note else text, schema


def has_rewritten_schema(definitions: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if the schema of a tool is sent in another form than it came, because a provider would refuse it."""
    for definition in iter_definitions(definitions):
        declared = next(filter(None, map(function_schema(definition).get, SCHEMA_KEYS)), None)
        if own_form(definition).type_name or not isinstance(declared, Mapping):
            continue
        schema, note = _parameters(definition_name(definition), function_schema(definition))
        if note or _sorted(schema) != _sorted(_without_marks(cast("object", declared))):
            return True
    return False


_MARKS = frozenset(("$schema", "$id", "$comment"))
"""Keywords that every provider accepts and ignores, and that are left out."""


def _without_marks(value: object) -> object:
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _without_marks(item) for key, item in items if key not in _MARKS}
    if isinstance(value, (list, tuple)):
        return [_without_marks(item) for item in cast("Sequence[object]", value)]
    return value


def _parameters(name: str, function: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the schema of a tool's parameters as providers accept it, and a note on parts that it cannot express."""
    declared: object = next(filter(None, map(function.get, SCHEMA_KEYS)), None)
    if isinstance(declared, Mapping):
        fields = cast("Mapping[str, Any]", declared)
    else:
        fields = {"properties": declared}
    properties: Any = fields.get("properties") or {}
    required: Any = fields.get("required") or ()
    is_list = isinstance(properties, (list, tuple)) and all(map(_has_name, cast("Sequence[object]", properties)))
    if (not isinstance(properties, Mapping) and not is_list) or not isinstance(required, (list, tuple, str, bool)):
        raise BadTool(f"parameters of tool {name!r} are not a JSON schema: {str(cast('object', declared))[:60]!r}")
    try:
        schema, note = usable_schema(json_copy(fields))
        check_json(schema)
    except BadTool as error:
        raise BadTool(f"tool {name!r} cannot be sent: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BadTool(f"tool {name!r} cannot be sent as JSON: {error}") from error
    return schema, note


def _has_name(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(cast("Mapping[str, object]", value).get("name"), str)


METADATA_KEY = "x-nexus"
"""Key of a definition for `category` and `roles`. Both may also be next to the name."""

_METADATA_FIELDS = ("category", "roles")


class ToolMetadata(Struct, frozen=True):
    """A tool as a policy sees it."""

    name: str
    category: str = ""
    roles: tuple[str, ...] = ()
    """The agents' roles that may have the tool; empty for all."""


def iter_definitions(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield definitions of one tool each. One in Gemini's dialect may have several tools. Raises BadTool."""
    for definition in definitions:
        for single in split_tools(definition):
            if not isinstance(single, Mapping):
                raise BadTool(f"tool definition is {type(single).__name__}, not a mapping")
            yield cast("Mapping[str, Any]", single)


def function_schema(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a definition with the tool's name, which OpenAI's dialect has under `function`."""
    return definition.get("function") or definition


def tool_metadata(definition: Mapping[str, Any]) -> ToolMetadata | None:
    """Return the metadata in a definition of one tool, or None if it has no name."""
    if not isinstance(definition, Mapping):
        return None
    function = function_schema(definition)
    name = own_form(definition).type_name
    if not name and isinstance(function, Mapping):
        name = function.get("name")
    if not isinstance(name, str):
        return None
    values: dict[str, object] = {}
    levels = [definition]
    if isinstance(function, Mapping) and function is not definition:
        levels.append(function)
    for level in levels:
        for fields in (level, mapping(level.get(METADATA_KEY))):
            values.update({key: fields[key] for key in _METADATA_FIELDS if key in fields})
    if not values:
        return ToolMetadata(name)
    category = values.get("category")
    roles = values.get("roles")
    names: Iterable[object] = () if roles is None else (roles,)
    if isinstance(roles, (list, tuple)):
        names = cast("Iterable[object]", roles)
    return ToolMetadata(name, category if isinstance(category, str) else "", tuple(map(str, names)))


_SHELL_NAMES = frozenset(
    {"bash", "sh", "shell", "zsh", "powershell", "terminal", "exec", "execute", "run_shell", "run_command"}
    | {"run_terminal_cmd", "execute_command", "exec_command", "shell_command", "local_shell"}
)
_READER_NAMES = frozenset(
    ("read", "read_file", "readfile", "read_text_file", "get_file_contents", "view", "view_file", "open_file", "cat")
)
_COMMAND_PARAMETERS = frozenset(("command", "cmd"))


SKILL_TOOL = "use_skill"
"""Tool by which an agent loads a skill by its name (`nexus.agents.tools`)."""


def tool_rows(definitions: Iterable[Mapping[str, Any]]) -> Iterable[tuple[ToolMetadata | None, Mapping[str, Any]]]:
    """Return the definition of each tool, with its metadata. Raises BadTool."""
    if isinstance(definitions, ToolList):
        return definitions.rows
    return _tool_rows(definitions)


def _tool_rows(definitions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[ToolMetadata | None, Mapping[str, Any]]]:
    return ((tool_metadata(definition), definition) for definition in iter_definitions(definitions))


def offers_tool(definitions: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return True if one of the tools has this name."""
    return any(tool is not None and tool.name == name for tool, _ in tool_rows(definitions))


def reading_tool(definitions: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the first tool that reads files, by its name; "" if there is none."""
    tools = (tool for tool, _ in tool_rows(definitions) if tool is not None)
    return next((tool.name for tool in tools if _bare_name(tool) in _READER_NAMES), "")


def offers_shell(definitions: Iterable[Mapping[str, Any]]) -> bool:
    """Return True if one of the tools runs commands, by its name or by a parameter named `command` or `cmd`."""
    if isinstance(definitions, ToolList):
        return definitions.has_shell
    return any(map(_runs_commands, tool_rows(definitions)))


def _runs_commands(row: tuple[ToolMetadata | None, Mapping[str, Any]]) -> bool:
    metadata, definition = row
    if metadata is not None and _bare_name(metadata) in _SHELL_NAMES:
        return True
    function = function_schema(definition)
    for key in SCHEMA_KEYS:
        properties = mapping(mapping(function.get(key)).get("properties"))
        if not _COMMAND_PARAMETERS.isdisjoint(properties):
            return True
    return False


def _bare_name(tool: ToolMetadata) -> str:
    """Return a tool's name in lower case, without the prefix of an MCP server."""
    return tool.name.rsplit("__", 1)[-1].lower()


class ToolSpec(Struct, frozen=True, order=True, omit_defaults=True):
    """One tool: name, description, JSON schema of its parameters (keys sorted)."""

    name: str
    description: str
    schema: dict[str, Any]
    """Empty for a typed tool, which its provider or its model defines."""
    provider: ToolProvider = ""
    """The provider whose form `provider_fields` are in."""
    provider_fields: dict[str, Any] = {}
    """The whole definition of a typed tool as received; of a function the fields that only its provider takes."""

    @property
    def is_typed(self) -> bool:
        """True for a tool without a schema of parameters, which only its own provider takes."""
        return not self.schema

    def definition(self) -> dict[str, Any]:
        """Return the definition in a form that says everything: its own, or the longest one, which is the counted one."""
        if self.is_typed:
            return self.provider_fields
        name = {"name": self.name, "description": self.description}
        key = "parameters_json_schema"
        if self.provider == "openai":
            name = {"type": "function", **name}
            key = "parameters"
        elif self.provider == "anthropic":
            key = "input_schema"
        return {**name, key: self.schema, **self.provider_fields}

    def counted(self) -> dict[str, Any]:
        """Return the definition as it counts: a deferred tool is not in the prompt before it was searched and found."""
        if self.provider_fields.get("defer_loading") is True:
            return {"name": self.name, "description": self.description}
        return self.definition()

    def fresh_schema(self) -> dict[str, Any]:
        """Return a copy of the schema for a request body, whose owner may change it."""
        return msgspec.to_builtins(self.schema)


def canonical(definitions: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return the definitions as specs, sorted by name; the last one of a name counts. Raises BadTool.

    Accepts OpenAI's `{"type": "function", "function": …}`, Anthropic's `input_schema`, Gemini's and plain `parameters`.
    """
    if isinstance(definitions, ToolList):
        return definitions.specs
    items = list(definitions)
    try:
        return _specs_from_json(msgspec.json.encode(items))
    except (TypeError, ValueError):  # not plain JSON, or with lone surrogates
        return _specs(items)


@lru_cache(maxsize=32)  # every call of a session comes with the same definitions
def _specs_from_json(definitions: bytes) -> tuple[ToolSpec, ...]:
    return _specs(msgspec.json.decode(definitions))


def _specs(definitions: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    specs: dict[str, ToolSpec] = {}
    for definition in iter_definitions(definitions):
        ((name, description, schema),) = read_definition(definition)
        form = own_form(definition)
        full: dict[str, Any] = {} if form.type_name else {"type": "object", "properties": {}, **schema}
        spec = ToolSpec(name, sanitize_text(description), _sorted(full), form.provider, _sendable(_bare(form)))
        specs[_key(definition)] = spec
    return tuple(specs[name] for name in sorted(specs))


def _bare(form: OwnForm) -> dict[str, Any]:
    """Return the fields without Nexus's own."""
    return {key: value for key, value in form.fields.items() if key not in (METADATA_KEY, *_METADATA_FIELDS)}


def _sendable(value: Any) -> Any:
    """Return plain JSON values in their order, without text that no body can carry."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, Any]", value)
        return {str(key): _sendable(items[key]) for key in items}
    if isinstance(value, (list, tuple)):
        return [_sendable(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, str):
        return sanitize_text(value)
    return value


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[object, Any]", value)
        return {str(key): _sorted(items[key]) for key in sorted(items, key=str)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, str):
        return sanitize_text(value)
    return value
