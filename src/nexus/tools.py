"""Python functions as typed tools, and the registry that calls them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, cast, get_args, overload

import docstring_parser
import msgspec
from msgspec import Struct

from nexus.errors import BadArguments, BadTool, ToolCallFailed, UnknownTool
from nexus.types.message import Message, ToolCall, tool
from nexus.types.request import AgentRole
from nexus.types.tool_definition import OWN, read_definition


class Tool(Struct, frozen=True, gc=False):
    """A tool. `schema` is the JSON Schema of its parameters, `category` what it is for (`messaging`, `spawning`, …).

    `roles` are the agents' roles that may have it, empty for all; `function` is None for a tool that runs elsewhere.
    Category and roles are no part of the definition: they decide whether a model is told of the tool at all.
    """

    name: str
    description: str
    schema: dict[str, Any]
    category: str = ""
    roles: tuple[AgentRole, ...] = ()
    function: Callable[..., Any] | None = None

    def definition(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as a new dict."""
        parameters = msgspec.to_builtins(self.schema)
        inner = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": inner}

    def offer(self) -> dict[str, Any]:
        """The definition with what decides whether a model is told of the tool: its category and roles, if it has any."""
        told: dict[str, Any] = {"category": self.category} if self.category else {}
        if self.roles:
            told["roles"] = list(self.roles)
        return {**self.definition(), OWN: told} if told else self.definition()


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class FunctionSchema(Struct, frozen=True):
    """What a function says of itself. `arguments` is the type that a call's arguments are read as."""

    name: str
    description: str
    schema: dict[str, Any]
    arguments: type[Struct]


def describe_function(function: Callable[..., Any], parameters: Mapping[str, str] | None = None) -> FunctionSchema:
    """The function as a tool; `parameters` has descriptions by name that stand before the docstring's.

    The description is the docstring without its sections; parameters without a type take anything. Raises BadTool: the
    function takes any number of arguments, or one of a type that has no JSON form.
    """
    name = getattr(function, "__name__", "") or type(function).__name__
    text, told = _documented(function)
    told = {**told, **(parameters or {})}
    signature, hints = _signature(function, name)
    if unknown := sorted(set(parameters or {}) - set(signature.parameters)):
        raise BadTool(f"{name} has no parameter {unknown[0]!r} that could be described")
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    for key, parameter in signature.parameters.items():
        if parameter.kind not in _BY_NAME:
            raise BadTool(f"{name} cannot be a tool: its parameter {key!r} cannot be given by name")
        kind = hints.get(key, Any)
        if parameter.default is None and kind is not Any:
            kind = kind | None
        kind = Annotated[kind, msgspec.Meta(description=told[key])] if key in told else kind
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
        raise BadTool(f"{name} cannot be a tool: {error}") from error
    return FunctionSchema(name, text, schema, arguments)


def _signature(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature and the types of the parameters. Raises BadTool where they cannot be found."""
    annotated = function if isinstance(function, (types.FunctionType, types.MethodType)) else type(function).__call__
    try:
        return inspect.signature(function), typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise BadTool(f"the types of {name} cannot be read: {error}") from error


def _documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring's description, and what it says of each parameter; all of it where its form is not known."""
    text = inspect.getdoc(function) or ""
    try:
        found = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    parts = (found.short_description, found.long_description)
    told = {one.arg_name: " ".join((one.description or "").split()) for one in found.params}
    return "\n\n".join(part for part in parts if part), {name: said for name, said in told.items() if said}


def _schema(arguments: type[Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the arguments, references put in their place, with the defaults that have a JSON form."""
    (whole,), parts = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    own = parts.pop(whole["$ref"].removeprefix("#/$defs/"))
    properties = cast("dict[str, Any]", own["properties"])
    for key, default in defaults.items():
        try:
            properties[key]["default"] = msgspec.to_builtins(default, str_keys=True)
        except TypeError:
            continue
    inlined = {key: _inlined(value, parts, ()) for key, value in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": inlined, "additionalProperties": False}
    if required := own.get("required"):
        schema["required"] = list(required)
    needed: dict[str, Any] = {}
    while named := [name for name in parts if name not in needed and _refers([schema, needed], name)]:
        needed.update({name: parts[name] for name in named})
    return {**schema, "$defs": dict(sorted(needed.items()))} if needed else schema


def _inlined(value: Any, parts: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """The schema with what it refers to in the place of the reference; types that hold themselves stay references."""
    if isinstance(value, list):
        return [_inlined(one, parts, inside) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    schema = cast("dict[str, Any]", value)
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if not name:
        return {key: _inlined(one, parts, inside) for key, one in schema.items()}
    if name in inside or _refers(parts[name], name):
        return schema
    beside = {key: one for key, one in schema.items() if key != "$ref"}
    named = {key: one for key, one in parts[name].items() if key != "title"}
    return {**_inlined(named, parts, (*inside, name)), **beside}


def _refers(value: Any, name: str) -> bool:
    if isinstance(value, list):
        return any(_refers(one, name) for one in cast("list[Any]", value))
    if not isinstance(value, dict):
        return False
    schema = cast("dict[str, Any]", value)
    return schema.get("$ref") == f"#/$defs/{name}" or any(_refers(one, name) for one in schema.values())


F = TypeVar("F", bound=Callable[..., Any])

_OBJECT = msgspec.json.Decoder(dict[str, Any])


class ToolRegistry:
    """Tools by name. State over time: what was registered. `nexus.open(…).assemble(…, tools=registry)` takes it as it is."""

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
        given: Callable[..., Any] | Mapping[str, Any],
        function: Callable[..., Any] | None = None,
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, str] | None = None,
        category: str = "",
        roles: str | Iterable[str] = (),
    ) -> Tool:
        """Adds a function, or a definition in any provider's form with the `function` behind it, if that is here.

        A function's schema comes from its signature, the description and those of its parameters from its docstring;
        `name`, `description` and `parameters` (descriptions by name) stand before these. `roles` are those that may have
        it, none for all. Raises BadTool: no schema, a name that is taken, a role that there is not.
        """
        allowed = _roles(roles)
        if isinstance(given, Mapping):
            if name or description or parameters:
                raise BadTool("a definition has its name and descriptions: change them there")
            (named, text, schema), kind = _one(cast("Mapping[str, Any]", given)), _arguments(function)
        elif function is None and callable(given):
            found = describe_function(given, parameters)
            named, text, schema, kind = (
                name or found.name,
                description or found.description,
                found.schema,
                found.arguments,
            )
            next(read_definition({"name": named}))
            function = given
        else:
            raise BadTool(f"{str(given)[:80]!r} is neither a function nor a tool's definition")
        if named in self._tools:
            raise BadTool(f"there is a tool {named!r} already: unregister it first, or give this one another name")
        added = Tool(named, text, dict(schema), category, allowed, function)
        self._tools[named] = (added, kind)
        return added

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Registers the function under it and leaves it as it is: `@registry.tool`, or with `register`'s options."""

        def registered(one: F) -> F:
            self.register(one, **options)
            return one

        return registered if function is None else registered(function)

    def unregister(self, name: str) -> Tool:
        """Takes the tool away and returns it. Raises UnknownTool."""
        found = self.get(name)
        del self._tools[name]
        return found

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises UnknownTool."""
        return self._entry(name)[0]

    def tools(self) -> tuple[Tool, ...]:
        """All tools, sorted by name."""
        return tuple(self._tools[name][0] for name in sorted(self._tools))

    def get_all_tool_definitions(self) -> list[dict[str, Any]]:
        """The definitions in OpenAI's form, sorted by name: the same tools give the same, in whatever order they came."""
        return [one.definition() for one in self.tools()]

    def get_definitions(self) -> list[dict[str, Any]]:
        """The same, under the name that document 004's `ContextManager.set_tool_definitions` is shown with."""
        return self.get_all_tool_definitions()

    def offers(self) -> list[dict[str, Any]]:
        """The same with each tool's category and roles, by which `nx.assemble(tools=registry)` leaves out some."""
        return [one.offer() for one in self.tools()]

    def definitions(self) -> list[dict[str, Any]]:
        """The definitions in the plain form, `{"name": …, "description": …, "parameters": …}`, sorted by name."""
        return [one.definition()["function"] for one in self.tools()]

    def call(self, name: str, arguments: str = "") -> str:
        """Calls the tool with the JSON text of its arguments and returns the result as text.

        Texts stay as they are, all else becomes JSON, None is empty. A function that is asynchronous is run to its end.
        Raises UnknownTool, BadArguments, and ToolCallFailed where the function raises.
        """
        with _failing(name):
            result = self._begin(name, arguments)
            return _text(_finished(name, result) if inspect.isawaitable(result) else result)

    async def call_async(self, name: str, arguments: str = "") -> str:
        """The same as `call`, for programs with an event loop: functions that are not asynchronous run in it as they are."""
        with _failing(name):
            result = self._begin(name, arguments)
            return _text(await result if inspect.isawaitable(result) else result)

    def answer(self, call: ToolCall) -> Message:
        """The result of a model's call as a message for the next event; what `call` raises is an `is_error` result."""
        try:
            return tool(call.id, self.call(call.name, call.arguments), call.name)
        except ToolCallFailed as error:
            return tool(call.id, str(error), call.name, is_error=True)

    async def answer_async(self, call: ToolCall) -> Message:
        """The same as `answer`, for programs with an event loop."""
        try:
            return tool(call.id, await self.call_async(call.name, call.arguments), call.name)
        except ToolCallFailed as error:
            return tool(call.id, str(error), call.name, is_error=True)

    def _entry(self, name: str) -> tuple[Tool, type[Struct] | None]:
        found = self._tools.get(name)
        if found is None:
            raise UnknownTool(f"there is no tool {name!r}; there are: {', '.join(sorted(self._tools)) or 'none'}")
        return found

    def _begin(self, name: str, arguments: str) -> Any:
        """What the function returns: its result, or what is to be awaited for it."""
        found, kind = self._entry(name)
        if found.function is None:
            raise ToolCallFailed(f"{name} cannot be called here: it was registered without a function")
        return found.function(**_given(found, kind, arguments))


def _roles(roles: str | Iterable[str]) -> tuple[AgentRole, ...]:
    named = {roles} if isinstance(roles, str) else set(roles)
    known: tuple[AgentRole, ...] = get_args(AgentRole)
    if strange := sorted(named.difference(known)):
        raise BadTool(f"there is no role {strange[0]!r}; there are: {', '.join(known)}")
    return tuple(role for role in known if role in named)


def _one(given: Mapping[str, Any]) -> tuple[str, str, Mapping[str, Any]]:
    found = list(read_definition(given))
    if len(found) != 1:
        raise BadTool(f"one definition declares {len(found)} tools: register each by itself")
    name, description, schema = found[0]
    return name, description, {"type": "object", "properties": {}, **schema}


def _arguments(function: Callable[..., Any] | None) -> type[Struct] | None:
    """The type of the arguments of a function that was given with a definition; None where it takes any (`**names`)."""
    if function is None:
        return None
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    return None if inspect.Parameter.VAR_KEYWORD in kinds else describe_function(function).arguments


def _given(found: Tool, kind: type[Struct] | None, arguments: str) -> dict[str, Any]:
    """The arguments by name. Raises BadArguments."""
    text = arguments if arguments.strip() else "{}"
    try:
        if kind is not None:
            read = msgspec.json.decode(text, type=kind)
            values = {key: getattr(read, key) for key in kind.__struct_fields__}
            return {key: value for key, value in values.items() if value is not msgspec.UNSET}
        given = _OBJECT.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise BadArguments(f"{found.name} was not called, its arguments are not what it takes: {error}") from error
    needed = cast("list[str]", found.schema.get("required") or [])
    if missing := [key for key in needed if key not in given]:
        raise BadArguments(f"{found.name} was not called: its argument {missing[0]!r} is missing")
    return given


@contextmanager
def _failing(name: str) -> Generator[None]:
    """Turns what a tool raises into ToolCallFailed."""
    try:
        yield
    except ToolCallFailed:
        raise
    except Exception as error:
        raise ToolCallFailed(f"{name} failed: {type(error).__name__}: {error}") from error


def _finished(name: str, awaited: Any) -> Any:
    """The result of an asynchronous function, run to its end where no event loop runs."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await(awaited))
    if inspect.iscoroutine(awaited):
        awaited.close()
    raise ToolCallFailed(f"{name} is asynchronous, and an event loop runs here: await call_async() or answer_async()")


async def _await(awaited: Any) -> Any:
    return await awaited


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
