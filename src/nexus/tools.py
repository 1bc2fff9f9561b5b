"""Python functions as typed tools, and the registry that calls them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Protocol, TypedDict, TypeVar, Unpack, cast, get_args, overload, runtime_checkable
from weakref import WeakKeyDictionary

import docstring_parser
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.errors import BadTool, ToolCallFailed
from nexus.types.decoding import decodable
from nexus.types.message import Message, Text, ToolCall, ToolResult
from nexus.types.settings import AgentRole
from nexus.types.tool_definition import METADATA_KEY, check_tool_name, read_definition, usable_definitions
from nexus.types.validation import check_options, json_copy

__all__ = ["ResultValue", "Tool", "ToolOptions", "ToolRegistry"]


class Tool(Struct, frozen=True):
    """A tool. Category and roles decide whether a model is offered it; they are not part of the definition."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON Schema of the parameters."""
    category: str = ""
    """Its purpose, such as `messaging` or `spawning`."""
    roles: tuple[AgentRole, ...] = ()
    """The agents' roles that may have it; empty for all."""
    function: Callable[..., Any] | None = None
    """None for a tool that runs elsewhere."""
    repeatable: bool = False
    """Whether an agent may run a call again whose result was lost."""
    needs_confirmation: bool = False
    """Whether an agent asks a person before each call."""
    ends_turn: bool = False
    """Whether an agent's turn ends with its result, without another reply."""

    def definition(self) -> dict[str, Any]:
        """Return the tool in OpenAI's dialect, as a new dict."""
        parameters = msgspec.to_builtins(self.schema)
        inner = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": inner}

    def offer(self) -> dict[str, Any]:
        """Return the definition with the tool's category and roles, if it has any."""
        metadata: dict[str, Any] = {"category": self.category} if self.category else {}
        if self.roles:
            metadata["roles"] = list(self.roles)
        if metadata:
            return {**self.definition(), METADATA_KEY: metadata}
        return self.definition()


class FunctionSchema(Struct, frozen=True):
    """Name, description and parameters of a function, from its signature and docstring."""

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[Struct]
    """Type that a call's arguments are decoded to."""


_described: WeakKeyDictionary[Callable[..., Any], dict[type, tuple[tuple[object, ...], FunctionSchema]]] = (
    WeakKeyDictionary()
)
"""The schemas of functions and methods, with what they were made from: an agent registers its tools for every turn."""


def describe_function(function: Callable[..., Any], parameters: Mapping[str, str] | None = None) -> FunctionSchema:
    """Describe a function as a tool. `parameters` has descriptions by name, which override the docstring's.

    The description is the docstring without its sections; parameters without a type accept anything. Raises BadTool if the
    function takes any number of arguments, or a type without a JSON form.
    """
    if parameters or not isinstance(function, (types.FunctionType, types.MethodType)):
        return _describe(function, parameters or {})
    plain = function.__func__ if isinstance(function, types.MethodType) else function
    if not isinstance(plain, types.FunctionType):
        return _describe(function, {})
    made_from = (plain.__name__, plain.__doc__, plain.__defaults__, plain.__kwdefaults__, {**plain.__annotations__})
    schemas = _described.setdefault(plain, {})
    cached = schemas.get(type(function))
    if cached is None or cached[0] != made_from:
        cached = schemas[type(function)] = (made_from, _describe(function, {}))
    return replace(cached[1], schema=msgspec.to_builtins(cached[1].schema))


def _describe(function: Callable[..., Any], parameters: Mapping[str, str]) -> FunctionSchema:
    name = getattr(function, "__name__", "") or type(function).__name__
    text, descriptions = _documentation(function)
    descriptions = {**descriptions, **parameters}
    if isinstance(function, (types.FunctionType, types.MethodType)):
        annotated = function
    else:
        annotated = type(function).__call__
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise BadTool(f"types of {name!r} cannot be read: {error}") from error
    if unknown := sorted(set(parameters) - set(signature.parameters)):
        raise BadTool(f"{name!r} has no parameter {unknown[0]!r}")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    for key, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadTool(f"{name!r} cannot be a tool: parameter {key!r} cannot be passed by name")
        kind = hints.get(key, Any)
        if parameter.default is None and kind is not Any:
            kind = kind | None
        if key in descriptions:
            kind = Annotated[kind, msgspec.Meta(description=descriptions[key])]
        if parameter.default is parameter.empty:
            fields.append((key, kind))
        else:
            if parameter.default is not None:
                defaults[key] = parameter.default
            fields.append((key, kind | msgspec.UnsetType, msgspec.UNSET))
    try:
        arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        schema = _schema(arguments, defaults)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadTool(f"{name!r} cannot be a tool: {error}") from error
    return FunctionSchema(name, text, schema, arguments)


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's description and its parameters' descriptions; the whole text if it cannot be parsed."""
    text = inspect.getdoc(function) or ""
    try:
        docstring = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = (docstring.short_description, docstring.long_description)
    descriptions = {param.arg_name: " ".join((param.description or "").split()) for param in docstring.params}
    return "\n\n".join(part for part in parts if part), {key: line for key, line in descriptions.items() if line}


def _schema(arguments: type[Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments, references inlined, with the defaults that have a JSON form."""
    (root,), components = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    inner = components.pop(root["$ref"].removeprefix("#/$defs/"))
    properties = cast("dict[str, Any]", inner["properties"])
    for key, default in defaults.items():
        try:
            properties[key]["default"] = msgspec.to_builtins(default, str_keys=True)
        except TypeError:
            continue
    inlined = {key: _inline(value, components, ()) for key, value in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": inlined, "additionalProperties": False}
    if required := inner.get("required"):
        schema["required"] = list(required)
    needed: dict[str, Any] = {}
    # Recursive types stay references, so their targets, and the targets of these, have to be in the schema.
    while missing := [name for name in components if name not in needed and _refers([schema, needed], name)]:
        needed.update({name: components[name] for name in missing})
    if needed:
        return {**schema, "$defs": dict(sorted(needed.items()))}
    return schema


def _inline(value: Any, components: Mapping[str, Any], parents: tuple[str, ...]) -> Any:
    """Return the schema with references replaced by their targets. Recursive types stay references."""
    if isinstance(value, list):
        return [_inline(item, components, parents) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    schema = cast("dict[str, Any]", value)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if not name:
        return {key: _inline(item, components, parents) for key, item in schema.items()}
    if name in parents or _refers(components[name], name):
        return schema
    target = {key: item for key, item in components[name].items() if key != "title"}
    extra = {key: item for key, item in schema.items() if key != "$ref"}
    return {**_inline(target, components, (*parents, name)), **extra}


def _refers(value: Any, name: str) -> bool:
    if isinstance(value, list):
        return any(_refers(item, name) for item in cast("list[Any]", value))
    if not isinstance(value, dict):
        return False
    schema = cast("dict[str, Any]", value)
    return schema.get("$ref") == f"#/$defs/{name}" or any(_refers(item, name) for item in schema.values())


F = TypeVar("F", bound=Callable[..., Any])

_OBJECT = msgspec.json.Decoder(dict[str, Any])


class ToolOptions(TypedDict, total=False):
    """Arguments of `ToolRegistry.register` for a function."""

    name: str
    description: str
    parameters: Mapping[str, str] | None
    category: str
    roles: str | Iterable[str]
    repeatable: bool
    needs_confirmation: bool
    ends_turn: bool


class ToolRegistry:
    """Tools by name. `nexus.open(…).assemble(…, tools=registry)` accepts it as it is."""

    def __init__(self, functions: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, tuple[Tool, type[Struct] | None]] = {}
        for function in functions:
            self.register(function)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def register(
        self,
        source: Callable[..., Any] | Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, str] | None = None,
        category: str = "",
        roles: str | Iterable[str] = (),
        repeatable: bool = False,
        needs_confirmation: bool = False,
        ends_turn: bool = False,
    ) -> Tool:
        """Add a function, or a definition in any provider's dialect with an optional `function` behind it.

        A function's schema comes from its signature, the descriptions from its docstring; `name`, `description` and
        `parameters` (descriptions by name) override them. `roles` are those that may have the tool, none for all.
        `repeatable`, `needs_confirmation` and `ends_turn` are for agents (docs/agents.md). Raises
        BadTool for a missing schema, a duplicate name or an unknown role.
        """
        names: set[str] = {roles} if isinstance(roles, str) else set(roles)
        valid: tuple[AgentRole, ...] = get_args(AgentRole)
        if unknown := sorted(names.difference(valid)):
            raise BadTool(f"role {unknown[0]!r} not found (available: {', '.join(valid)})")
        if isinstance(source, Mapping):
            if name or description or parameters:
                raise BadTool("name and descriptions are part of the definition (change them there)")
            (definition,), _ = usable_definitions(cast("list[object]", [source]))
            tools = list(read_definition(definition))
            if len(tools) != 1:
                raise BadTool(f"definition declares {len(tools)} tools (register each separately)")
            key, text, declared = tools[0]
            schema: dict[str, Any] = {"type": "object", "properties": {}, **declared}
            kind = None
            if function is not None:
                kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
                # A function that takes any names (`**names`) is called with the arguments as they are.
                takes_any = inspect.Parameter.VAR_KEYWORD in kinds
                if takes_any:
                    kind = None
                else:
                    kind = describe_function(function).arguments
        elif function is None and callable(source):
            described = describe_function(source, parameters)
            key = name or described.name
            text = description or described.description
            schema = described.schema
            kind = described.arguments
            function = source
            check_tool_name(key, {"name": key})
        else:
            if isinstance(source, str):
                label = repr(source[:80])
            else:
                label = type(source).__name__
            raise BadTool(f"{label} is neither a function nor a tool definition")
        if key in self._tools:
            raise BadTool(f"tool {key!r} already exists (unregister it first, or use another name)")
        allowed: tuple[AgentRole, ...] = tuple(role for role in valid if role in names)
        added = Tool(key, text, schema, category, allowed, function, repeatable, needs_confirmation, ends_turn)
        self._tools[key] = (added, kind)
        return added

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
        """Register the decorated function and return it unchanged: `@registry.tool`, or with `register`'s options."""
        check_options("tool", options, ToolOptions)

        def decorate(target: F) -> F:
            self.register(target, **options)
            return target

        if function is None:
            return decorate
        return decorate(function)

    def include(self, other: ToolRegistry) -> None:
        """Add all tools of another registry. Raises BadTool for a name that both have; none is added then."""
        if both := sorted(self._tools.keys() & other._tools.keys()):
            raise BadTool(f"tool {both[0]!r} exists in both registries (unregister it in one)")
        self._tools.update(other._tools)

    def unregister(self, name: str) -> Tool:
        """Remove and return a tool. Raises ToolCallFailed."""
        removed = self.get(name)
        del self._tools[name]
        return removed

    def get(self, name: str) -> Tool:
        """Return the tool of that name. Raises ToolCallFailed."""
        return self._entry(name)[0]

    def tools(self) -> tuple[Tool, ...]:
        """Return all tools, sorted by name."""
        return tuple(self._tools[name][0] for name in sorted(self._tools))

    def get_all_tool_definitions(self) -> list[dict[str, Any]]:
        """Return the definitions in OpenAI's dialect, sorted by name, so that the order of registration has no effect."""
        return [entry.definition() for entry in self.tools()]

    def get_definitions(self) -> list[dict[str, Any]]:
        """Return the same definitions; document 004's `ContextManager.set_tool_definitions` uses this name."""
        return self.get_all_tool_definitions()

    def offers(self) -> list[dict[str, Any]]:
        """Return the definitions with categories and roles, by which `nx.assemble(tools=registry)` omits tools."""
        return [entry.offer() for entry in self.tools()]

    def definitions(self) -> list[dict[str, Any]]:
        """Return the definitions in plain form, `{"name": …, "description": …, "parameters": …}`, sorted by name."""
        return [entry.definition()["function"] for entry in self.tools()]

    def call(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """Call a tool with its arguments, as JSON text or by name, and return the result as text.

        Text is returned as it is, of a `ToolResult` its text, None as "", anything else as JSON. Async functions are run to completion. Raises
        ToolCallFailed, and ToolCallFailed if the function raises.
        """
        self._entry(name)
        with _wrap_errors(name):
            result = self._start(name, arguments)
            return _text(_run(name, result) if inspect.isawaitable(result) else result)

    async def call_async(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """Call a tool from an event loop. Functions that are not async run in the loop's thread."""
        self._entry(name)
        with _wrap_errors(name):
            result = self._start(name, arguments)
            return _text(await result if inspect.isawaitable(result) else result)

    async def execute(self, name: str, arguments: str | Mapping[str, Any] = "") -> str:
        """Call a tool and return the result's text, or the error's: `await tools.execute("list_dir", {"path": "."})`.

        Document 003's interface. Functions that are not async run in a thread, so that several calls run at once.
        Programs that distinguish errors from results use `call_async` or `execute_call`.
        """
        try:
            return _text(await self._execute(name, arguments))
        except ToolCallFailed as error:
            return str(error)

    async def execute_call(self, call: ToolCall) -> ToolResult:
        """Run a model's call as `execute` does, and return the result with its images; errors have `is_error`."""
        try:
            return _as_result(call, await self._execute(call.name, call.arguments))
        except ToolCallFailed as error:
            return _failed(call, error)

    def answer(self, call: ToolCall) -> Message:
        """Return the result of a model's call as a message for the next event; errors become `is_error` results."""
        try:
            with _wrap_errors(call.name):
                value = self._start(call.name, call.arguments)
                if inspect.isawaitable(value):
                    value = _run(call.name, value)
                return Message("tool", (_as_result(call, value),))
        except ToolCallFailed as error:
            return Message("tool", (_failed(call, error),))

    async def answer_async(self, call: ToolCall) -> Message:
        """Do the same as `answer` from an event loop."""
        try:
            with _wrap_errors(call.name):
                value = self._start(call.name, call.arguments)
                value = await value if inspect.isawaitable(value) else value
                return Message("tool", (_as_result(call, value),))
        except ToolCallFailed as error:
            return Message("tool", (_failed(call, error),))

    # `answer` sends the texts of ToolCallFailed to the model: they keep their bytes.

    def _entry(self, name: str) -> tuple[Tool, type[Struct] | None]:
        entry = None
        if isinstance(name, str):
            entry = self._tools.get(name)
        if entry is None:
            if isinstance(name, str):
                label = repr(name)
            else:
                label = f"of a name that is {type(name).__name__}"
            raise ToolCallFailed(
                f"there is no tool {label}; there are: {', '.join(sorted(self._tools)) or 'none'}", code="unknown_tool"
            )
        return entry

    def _start(self, name: str, arguments: str | Mapping[str, Any]) -> Any:
        """Call the function and return its result, which may be awaitable."""
        function, values = self._prepare(name, arguments)
        return function(**values)

    async def _execute(self, name: str, arguments: str | Mapping[str, Any]) -> Any:
        """Call the function and return its value. Only coroutine functions are called in the loop, others in a thread."""
        import asyncio

        def call() -> Any:
            with _wrap_errors(name):  # in the thread, because a StopIteration cannot reach a future
                return function(**values)

        with _wrap_errors(name):
            function, values = self._prepare(name, arguments)
            is_async = inspect.iscoroutinefunction(function)
            if is_async:
                value = function(**values)
            else:
                value = await asyncio.to_thread(call)
            if inspect.isawaitable(value):
                return await value
            return value

    def _prepare(self, name: str, arguments: str | Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
        """Return the function and its decoded arguments. Raises ToolCallFailed."""
        entry, kind = self._entry(name)
        if entry.function is None:
            raise ToolCallFailed(f"{name} cannot be called here: it was registered without a function")
        return entry.function, _decode_arguments(entry, kind, arguments)


def _decode_arguments(entry: Tool, kind: type[Struct] | None, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name. Raises ToolCallFailed."""
    try:
        # Clients of some providers give the arguments as an object and not as text.
        if isinstance(arguments, str):
            text = arguments
        else:
            text = msgspec.json.encode(json_copy(arguments))
        text = text if text.strip() else "{}"
        if kind is not None:
            decoded = _decode_as(text, kind)
            fields = {key: getattr(decoded, key) for key in kind.__struct_fields__}
            return {key: value for key, value in fields.items() if value is not msgspec.UNSET}
        values = _OBJECT.decode(text)
    except (ValueError, RecursionError) as error:
        raise ToolCallFailed(
            f"{entry.name} was not called, its arguments are not what it takes: {error}", code="bad_arguments"
        ) from error
    required = cast("list[str]", entry.schema.get("required") or [])
    if missing := [key for key in required if key not in values]:
        raise ToolCallFailed(
            f"{entry.name} was not called: its argument {missing[0]!r} is missing", code="bad_arguments"
        )
    return values


def _decode_as(text: str | bytes, kind: type[Struct]) -> Struct:
    """Return the arguments as their type, with `1.0` for an integer, as JSON Schema has it. Raises ValueError."""
    try:
        return msgspec.json.decode(text, type=decodable(kind))
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(_with_integers(msgspec.json.decode(text)), decodable(kind))
        except msgspec.ValidationError:
            raise error from None


_MOST_EXACT = 2**53


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MOST_EXACT:
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in cast("dict[str, Any]", value).items()}
    return value


@contextmanager
def _wrap_errors(name: str) -> Generator[None]:
    """Convert exceptions of a tool into ToolCallFailed."""
    try:
        yield
    except ToolCallFailed:
        raise
    except Exception as error:
        raise ToolCallFailed(f"{name} failed: {type(error).__name__}: {error}") from error


def _run(name: str, result: Any) -> Any:
    """Run an async function's result to completion. Raises ToolCallFailed inside an event loop."""
    import asyncio

    async def wait() -> Any:  # `asyncio.run` accepts coroutines only, and a tool may return any awaitable
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    if inspect.iscoroutine(result):
        result.close()
    raise ToolCallFailed(f"{name} is asynchronous, and an event loop runs here: await call_async() or answer_async()")


def _as_result(call: ToolCall, value: Any) -> ToolResult:
    """Return a function's value as the result of a call: a ToolResult as it is, other values as text."""
    value = _plain_value(value)
    if isinstance(value, ToolResult):
        return replace(value, call_id=call.id, name=call.name)
    return ToolResult(call.id, (Text(_text(value)),), call.name)


def _failed(call: ToolCall, error: ToolCallFailed) -> ToolResult:
    return ToolResult(call.id, (Text(str(error)),), call.name, is_error=True)


@runtime_checkable
class ResultValue(Protocol):
    """A value of another interface that says what result of a tool it is."""

    def as_tool_result(self) -> ToolResult:
        """Return the result, whose call and name are set by the caller."""
        ...


def _plain_value(value: Any) -> Any:
    if isinstance(value, ResultValue):
        return value.as_tool_result()
    return value


def _text(value: Any) -> str:
    value = _plain_value(value)
    if isinstance(value, str):
        return value
    if isinstance(value, ToolResult):
        return "\n".join(item.text for item in value.content if isinstance(item, Text))
    if value is None:
        return ""
    return msgspec.json.encode(value, enc_hook=str).decode()
