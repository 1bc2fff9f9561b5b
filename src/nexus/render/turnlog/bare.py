"""Between a message and an entry without its extra key: what the printed form says, and what is read out of it alone."""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct

from nexus.render.turnlog.entry import POST, LogRole
from nexus.render.turnlog.texts import Members, escape_surrogates, json_string, object_text, shallow_members, string_of
from nexus.types.message import Message, Part, Text, Thinking, ToolCall

RESERVED = frozenset({"text", "reasoning", "toolCall", "arguments"})
"""Names of the printed form: a tool's parameter of such a name goes into `arguments`."""

UNNAMED = "(unnamed)"
"""The `toolCall` of a call whose tool has no name."""


class BareEntry(Struct, frozen=True):
    """What an entry shows: the text that was said, the reasoning, the tool's name, and its arguments as one JSON text."""

    text: str
    reasoning: str = ""
    tool: str = ""
    arguments: str = ""


def slices(message: Message) -> list[tuple[Part, ...]]:
    """The parts for each entry of a message: an assistant's are cut after each call, the rest stays with the last one."""
    if message.role != "assistant":
        return [message.parts]
    ends = [number for number, part in enumerate(message.parts, 1) if isinstance(part, ToolCall)]
    cuts = [0, *ends[:-1], len(message.parts)]
    return [message.parts[first:last] for first, last in pairwise(cuts)]


def content_of(role: LogRole, parts: tuple[Part, ...], user: str) -> str | Members:
    """The printed `content` for the parts of one entry.

    What was said or thought beside a call is its reasoning; text without a call is a `postMessage`, and what was thought
    beside it the reasoning of that.
    """
    said = "\n".join(part.text for part in parts if isinstance(part, Text))
    if role == "system":
        return said
    if role == "user":
        return (("userid", json_string(user)), ("text", json_string(said)))
    call = next((part for part in parts if isinstance(part, ToolCall)), None)
    kinds = (Text, Thinking) if call else (Thinking,)
    reasoning = "\n".join(part.text for part in parts if isinstance(part, kinds) and part.text)
    shown = _call(call) if call else (("toolCall", json_string(POST)), ("text", json_string(said)))
    return (*shown, ("reasoning", json_string(reasoning))) if reasoning else shown


def _call(call: ToolCall) -> Members:
    """A call's name and parameters: those with names of the printed form, or all if they are no object, in `arguments`."""
    given = shallow_members(call.arguments)
    parameters = tuple((name, escape_surrogates(text)) for name, text in given or ())
    shown = [("toolCall", json_string(call.name or UNNAMED))]
    aside = [one for one in parameters if one[0] in RESERVED]
    if call.name == POST:
        text = next((one for one in aside if one[0] == "text" and one[1][0] == '"'), ("text", '""'))
        aside = [one for one in aside if one is not text]
        shown.append(text)
    shown += [one for one in parameters if one[0] not in RESERVED]
    if given is None:
        shown.append(("arguments", json_string(call.arguments)))
    elif aside:
        shown.append(("arguments", object_text(tuple(aside))))
    return tuple(shown)


def parse_bare(role: LogRole, content: str | Members) -> BareEntry:
    """What a `content` says. Members of a wrong type count as missing; of two with one name the last counts."""
    if isinstance(content, str):
        return BareEntry(content)
    named = dict(content)
    text, reasoning = (string_of(named.get(name, "")) or "" for name in ("text", "reasoning"))
    if role != "assistant":
        return BareEntry(text)
    return BareEntry(text, reasoning, string_of(named.get("toolCall", "")) or "", _arguments(named))


def _arguments(named: dict[str, str]) -> str:
    """A call's arguments out of its members: the parameters, then what stands in `arguments`, unless that is all."""
    aside = named.get("arguments", "")
    whole = string_of(aside)
    if whole is not None:
        return whole
    more = shallow_members(aside) if aside else ()
    parameters = {name: text for name, text in named.items() if name not in ("toolCall", "reasoning", "arguments")}
    if more is None:
        parameters["arguments"] = aside
    return object_text((*parameters.items(), *(one for one in more or () if one[0] not in parameters)))


def message_of(role: LogRole, shown: BareEntry, index: int, at_ms: int) -> Message:
    """The message that an entry is without its extra key. A call's id is `call_<index>`; its reasoning was thought."""
    if role != "assistant":
        return Message(role, (Text(shown.text),), at_ms=at_ms)
    thought = (Thinking(shown.reasoning),) if shown.reasoning else ()
    return Message(role, (*thought, ToolCall(f"call_{index}", shown.tool, shown.arguments)), at_ms=at_ms)
