"""Deltas of chat completions, joined into the message that a reply without a stream has.

Compatible servers number the fragments of calls in many ways: all with one index, without one, with the id and the name in
each fragment, with the id behind the arguments, or with whole calls. A new id, or a name behind complete arguments, begins
a call, unless a call before it has no id yet and the fragment says nothing else of another one. A fragment without an id
continues the last call of its index, or the last one. A repeated name replaces the one before it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nexus.providers.received import arguments_text, items_of, list_or_one, mapping, text_of

Fields = dict[str, Any]
_object = msgspec.json.Decoder(Fields)


def decoded_object(text: str) -> Fields | None:
    """Return the JSON object in the text; None if it is none."""
    try:
        return _object.decode(text)
    except msgspec.MsgspecError:
        return None


class CallDeltas:
    """The tool calls of one message so far."""

    def __init__(self) -> None:
        self._calls: list[Fields] = []
        self._last: Fields | None = None
        self._repeated: Fields | None = None
        """A fragment that names a complete call again: it begins another call if arguments follow."""

    def add(self, fragment: Fields) -> None:
        """Add a fragment of a call."""
        repeated = self._repeated
        self._repeated = None
        call = self._continued(fragment)
        name = _name(fragment)
        has_arguments = bool(_arguments(fragment).strip())
        if call is not None and _is_same(call, fragment):
            call["function"]["arguments"] = ""  # they come again, with the id
        elif call is not None and _is_complete(call) and not (text_of(fragment.get("id")) and name):
            if has_arguments and (name or repeated):
                function = {**_function(repeated), **_function(fragment)}
                fragment = {**(repeated or {}), **fragment, "function": function}
                call = None
            elif name and not _arguments(fragment):
                if name == _name(call):
                    self._repeated = fragment
                else:
                    call = None
            elif has_arguments:
                # Nothing may follow a whole object: the server sends the arguments again, behind an empty object or whole.
                call["function"]["arguments"] = ""
        if call is None:
            call = {"type": "function"}
            self._calls.append(call)
        _join_call(call, fragment)
        self._last = call

    def _continued(self, fragment: Fields) -> Fields | None:
        """Return the call that a fragment continues; None if it begins one."""
        index = fragment.get("index")
        calls = [call for call in self._calls if index is None or call.get("index") in (index, None)]
        if call_id := text_of(fragment.get("id")):
            return _call_of_id(calls, call_id, fragment)
        name = _name(fragment)
        last = self._last
        if index is not None and calls:
            last = calls[-1]
        elif index is not None and last is not None and (name or _is_complete(last)):
            return None
        # Another name behind the beginning of arguments is another call's.
        if last is not None and name and _arguments(last) and name != _name(last):
            return None
        return last

    def joined(self, *, partial: bool) -> list[Fields]:
        """Return the calls in their order, with `partial` those that are complete, and with each id once."""
        calls = self._calls
        indexes = [call.get("index") for call in calls]
        if all(isinstance(index, int) for index in indexes) and len({*indexes}) == len(calls):
            calls = sorted(calls, key=lambda call: call["index"])
        # A call is complete when the next one begins. The last one is, if its arguments are a whole JSON object.
        if partial and calls and not _is_complete(calls[-1]):
            calls = calls[:-1]
        return [{name: value for name, value in call.items() if name != "index"} for call in calls]

    @property
    def is_whole(self) -> bool:
        """True if the last call has complete arguments, or there is none."""
        return self._last is None or _is_complete(self._last) or not _arguments(self._last)


def _call_of_id(calls: list[Fields], call_id: str, fragment: Fields) -> Fields | None:
    """Return the call, of those of its index, that a fragment with an id continues; None if it begins one."""
    name = _name(fragment)
    has_arguments = bool(_arguments(fragment).strip())
    for call in reversed(calls):
        if call.get("id") == call_id:
            begins_another = name and has_arguments and _is_complete(call)
            if begins_another:
                return None
            return call
    if not name and not _arguments(fragment):
        for call in calls:
            if not call.get("id"):
                return call
    if not calls:
        return None
    last = calls[-1]
    if last.get("id"):
        # Some servers make an id for each fragment.
        if name or _is_complete(last):
            return None
        return last
    # The id may come behind the beginning of its call, or behind all of it.
    says_more = name and (has_arguments or name != _name(last))
    if says_more and _is_complete(last) and not _is_same(last, fragment):
        return None
    return last


def _key(call: Fields) -> str:
    if isinstance(call.get("custom"), dict):
        return "custom"
    return "function"


def _function(call: Fields | None) -> Fields:
    return mapping((call or {}).get(_key(call or {})))


def _name(call: Fields) -> str:
    return text_of(_function(call).get("name"))


def _arguments(call: Fields) -> str:
    function = _function(call)
    value = function.get("input" if _key(call) == "custom" else "arguments")
    if value is None:
        return ""
    return arguments_text(value)


def _is_complete(call: Fields) -> bool:
    """Return True if the call's arguments are a whole JSON object; free text of a custom tool may go on."""
    return _key(call) == "function" and decoded_object(_arguments(call)) is not None


def _is_same(call: Fields, fragment: Fields) -> bool:
    """Return True if a fragment is a whole call again, with the id that it lacks."""
    if call.get("id") or not fragment.get("id") or not _is_complete(call) or _name(fragment) != _name(call):
        return False
    return decoded_object(_arguments(fragment)) == decoded_object(_arguments(call))


def _join_call(call: Fields, fragment: Fields) -> None:
    for name, value in fragment.items():
        if name in ("function", "custom") and isinstance(value, dict):
            join_function(call.setdefault(name, {}), mapping(value))
        elif value not in (None, "") and not (name == "id" and call.get("id")):
            call[name] = value


def join_function(function: Fields, delta: Fields) -> None:
    """Add a fragment of a call's name and arguments to the function so far."""
    for name, value in delta.items():
        if value is None:
            continue
        before = text_of(function.get(name))
        if name in ("arguments", "input"):
            function[name] = before + arguments_text(value)
        elif name == "name" and isinstance(value, str):
            # A name comes in pieces, or again in each fragment, sometimes longer each time.
            function[name] = value if value.startswith(before) else before + value
        else:
            function[name] = value


def join_delta(message: Fields, delta: Fields) -> None:
    """Add a delta to a message: texts are continued, calls joined by `CallDeltas`."""
    for name, value in delta.items():
        if value is None or name in ("role", "index"):
            continue
        before = message.get(name)
        if name == "tool_calls":
            calls = message.setdefault(name, CallDeltas())
            for fragment in map(mapping, list_or_one(value)):
                calls.add(fragment)
        elif name == "function_call":
            join_function(message.setdefault(name, {}), mapping(value))
        elif name == "reasoning_details":
            message[name] = _joined_parts(items_of(before), items_of(value))
        elif name == "content" and (isinstance(value, list) or isinstance(before, list)):
            message[name] = _joined_parts(_content_parts(before), _content_parts(value))
        elif name in ("id", "type"):
            message[name] = value
        elif isinstance(value, str):
            message[name] = text_of(before) + value
        elif isinstance(value, dict):
            join_delta(message.setdefault(name, {}), mapping(value))
        elif isinstance(value, list):
            message.setdefault(name, []).extend(items_of(value))
        else:
            message[name] = value


def repeats_deltas(message: Fields, before: Fields) -> bool:
    """Return True if a message has everything that its deltas before it have, text and calls."""
    joined: Fields = {}
    join_delta(joined, message)
    text = joined.get("content")
    text_before = before.get("content")
    if isinstance(text, list) or isinstance(text_before, list):
        has_text = text == text_before
    else:
        has_text = text_of(text).startswith(text_of(text_before))
    names = _names(joined)
    names_before = _names(before)
    has_begun = text_before not in (None, "", []) or len(names_before) > 0
    return has_begun and has_text and names[: len(names_before)] == names_before


def _names(message: Fields) -> list[str]:
    deltas = message.get("tool_calls")
    if not isinstance(deltas, CallDeltas):
        return []
    return [_name(call) for call in deltas.joined(partial=False)]


def joined_message(message: Fields, *, partial: bool) -> Fields:
    """Return the message with its calls, with `partial` those that are complete."""
    joined = {name: value for name, value in message.items() if name not in ("tool_calls", "function_call")}
    deltas = message.get("tool_calls")
    if isinstance(deltas, CallDeltas) and (calls := deltas.joined(partial=partial)):
        joined["tool_calls"] = calls
    legacy = message.get("function_call")
    is_whole = not partial or decoded_object(text_of(mapping(legacy).get("arguments"))) is not None
    if legacy and is_whole:
        joined["function_call"] = legacy
    return joined


def _content_parts(content: Any) -> list[Any]:
    if isinstance(content, str) and content:
        return [{"type": "text", "text": content}]
    return items_of(content)


_PIECES = ("text", "summary", "data", "thinking")


def _joined_parts(parts: list[Any], more: list[Any]) -> list[Any]:
    """Return a list with further parts, of which pieces of the last one continue it."""
    joined = [*parts]
    for part in more:
        last = mapping(joined[-1]) if joined else {}
        if not _continues(last, mapping(part)):
            joined.append(part)
            continue
        fields = {**last}
        for name, value in mapping(part).items():
            if name in _PIECES and isinstance(value, str):
                fields[name] = text_of(last.get(name)) + value
            elif name in _PIECES and isinstance(value, list):
                fields[name] = _joined_parts(items_of(last.get(name)), items_of(value))
            elif value is not None:
                fields[name] = value
        joined[-1] = fields
    return joined


def _continues(last: Fields, part: Fields) -> bool:
    """Return True for a piece of the same part: of one kind, and of the same index and id, if both have one."""
    if not last or last.get("type") != part.get("type") or part.get("type") == "reasoning.encrypted":
        return False
    same = all(last[name] == part[name] for name in ("index", "id") if name in last and name in part)
    # A signature ends a text, where no index tells the parts apart.
    return (
        same
        and ("index" in last or not last.get("signature"))
        and any(name in part for name in (*_PIECES, "signature"))
    )
