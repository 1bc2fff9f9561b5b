"""Pointers in notices to the full form of shortened and omitted parts.

If the tool `recall` is offered, they name it. The proxy's tool `nexus_omitted` is named for what is left out, which is all
that it opens. With only other tools they name nothing, because a model with a shell
would try to run a command. Without tools they name a command, which the model can pass on to a person. Commands in
messages omit the session's name, because it may change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from nexus.types.history import Lookup
from nexus.types.ledger_entries import MessageRef
from nexus.types.tool_definition import read_definition, tool_rows

RECALL = "recall"
"""Name of the tool that searches and opens the history (see `nexus.agents.tools.history`)."""

OMITTED = "nexus_omitted"
"""Name of the proxy's tool that searches and opens what is left out of a list (see `nexus.proxy.omitted_tool`)."""

LONGEST_NAME = 60
"""Longest session name, in characters, that a command contains. The command must be safe to copy."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")


def lookup_with(tools: Sequence[Mapping[str, Any]]) -> Lookup:
    """Return the kind of pointers for a model with these tools. Another program's tool of such a name does not count."""
    kinds: dict[str, tuple[Lookup, frozenset[str]]] = {
        RECALL: ("recall", frozenset({"reference"})),
        OMITTED: ("omitted", frozenset({"query", "number"})),
    }
    for tool, row in tool_rows(tools):
        if tool is not None and tool.name in kinds:
            kind, parameters = kinds[tool.name]
            if _takes(row, parameters):
                return kind
    if tools:
        return "none"
    return "command"


def _takes(definition: Mapping[str, Any], parameters: frozenset[str]) -> bool:
    return any(parameters <= {*schema.get("properties", ())} for _, _, schema in read_definition(definition))


def call_lookup(lookup: Lookup, call_id: str) -> str:
    """Return the pointer to a tool call's result; empty for none."""
    is_plain = _PLAIN_ID.match(call_id) is not None
    match lookup:
        case "recall":
            return _recall(call_id if is_plain else "turns")
        case "command":
            if is_plain:
                return f"`nexus history --call {call_id}`"
            return "`nexus history`"
        case "":
            if is_plain:
                return f"`nexus history SESSION --call {call_id}`"
            return "`nexus history SESSION`"
        case _:
            return ""


def message_lookup(lookup: Lookup, ref: MessageRef) -> str:
    """Return the pointer to a message that is not shown in full; empty for none."""
    match lookup:
        case "recall":
            return _recall(f"{ref.seq}.{ref.ord}")
        case "command":
            return "`nexus history`"
        case "":
            return "`nexus history SESSION`"
        case _:
            return ""


def image_lookup(lookup: Lookup, call_id: str, ref: MessageRef) -> str:
    """Return the pointer to an image of a call's result, or of a message if `call_id` is empty."""
    is_plain = _PLAIN_ID.match(call_id) is not None
    call = f" --call {call_id}" if is_plain else ""
    match lookup:
        case "recall":
            return _recall(call_id if is_plain else f"{ref.seq}.{ref.ord}")
        case "command":
            return f"`nexus history{call} --images FOLDER`"
        case "":
            return f"`nexus history SESSION{call} --images FOLDER`"
        case _:
            return ""


def session_lookup(lookup: Lookup, session: str) -> str:
    """Return the sentence of an omission notice with the pointer to the session's messages; empty for none."""
    if lookup == "none":
        return ""
    if lookup == "recall":
        return " Nothing is lost: the tool recall searches and opens all of them."
    if lookup == "omitted":
        return f" Nothing is lost: the tool {OMITTED} finds them by a query, and opens one by its number."
    is_plain = session.isascii() and session.isprintable() and len(session) <= LONGEST_NAME
    command = "`nexus sessions` and `nexus history` show"
    if is_plain:
        command = f"`nexus history {shlex.quote(session)}` shows"
    return f" Nothing is lost: {command} the whole conversation."


def digest_heading(lookup: Lookup) -> str:
    """Return the heading of a digest of tool calls."""
    match lookup:
        case "recall":
            where = f" Nothing is lost: {_recall('ID')} opens a call with its result."
        case "command":
            where = " Nothing is lost: `nexus history --call ID` shows a call with its result."
        case "":
            where = " Nothing is lost: `nexus history SESSION --call ID` shows a call with its result."
        case _:
            where = ""
    return f"[Record of earlier tool calls.{where}]"


def _recall(reference: str) -> str:
    return f'{RECALL}(reference="{reference}")'
