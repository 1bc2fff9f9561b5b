"""Check that a context contains a mirrored list whole and unchanged, so that it may be sent as received."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

from msgspec import Struct

from nexus.context import AssembledContext
from nexus.providers import anthropic, gemini
from nexus.providers.anthropic_system import system_blocks
from nexus.providers.messages import ReadItems
from nexus.providers.sent_as_received import are_sent_as_received
from nexus.providers.tools import NOT_IN_CHAT
from nexus.text.as_received import ReceivedFormat
from nexus.types.block import ContextWarning
from nexus.types.message import Message, ProviderFormat
from nexus.types.request import TOOLS_ORIGIN
from nexus.types.tool_definition import has_rewritten_schema

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Ids of calls that every provider takes: chat completions have at most 40 characters, Anthropic only these."""


class ListForm(Struct, frozen=True):
    """Form in which a client's list was read."""

    format: ReceivedFormat = "openai"
    is_given: bool = False
    """True if the caller named the format."""
    is_sent_as_received: bool = True

    def extended(self, read: ReadItems) -> Self:
        """Return the form of the list with further items."""
        form = read.format if self.format == "openai" else self.format
        return type(self)(form, self.is_given, self.is_sent_as_received and are_sent_as_received(read))

    def is_for(self, provider_format: ProviderFormat) -> bool:
        """Return True if the list is in a format of the model's provider, or in one that the caller named."""
        if provider_format == "openai":
            formats = ("openai", "responses")
        else:
            formats = (provider_format,)
        return self.is_given or self.format in formats


def has_unchanged_tools(ctx: AssembledContext, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the tools are sent as they were passed."""
    if ctx.provenance.denied_tools or any(map(_is_changed_tool, ctx.warnings)):
        return False
    return not has_rewritten_schema(tools)


def has_unchanged_list(
    ctx: AssembledContext, form: ListForm, messages: list[Message], system: str, opening_system: str
) -> bool:
    """Return True if no part of the list was omitted, truncated, repaired, put back or added.

    Args:
        ctx: The context of the list.
        form: The form in which the list was read.
        messages: The list's messages, without the system messages that it begins with.
        system: The system prompt that came with the list.
        opening_system: The part of it that the list begins with.
    """
    mirrored = ctx.mirrored
    provenance = ctx.provenance
    if not form.is_sent_as_received or mirrored is None or mirrored.restored_count:
        return False
    if not form.is_for(ctx.accounting.model_info.provider_format):
        return False
    if opening_system and form.format in ("anthropic", "gemini"):
        return False  # these providers take no system message at the beginning
    if ctx.system_prompt != system or provenance.omitted_blocks:
        return False
    if ctx.history.opening or ctx.history.closing or _loses_parts(ctx, form):
        return False
    if any(message.role == "system" for message in messages) and not _keeps_system_messages(ctx, form):
        return False
    return _has_same_ids(ctx.messages, messages) and all(entry.state == "unchanged" for entry in ctx.sent_messages)


def _has_same_ids(visible: Sequence[Message], messages: Sequence[Message]) -> bool:
    """Return True if two lists have the same calls and results.

    A client that sent a request again has the second answer, with other ids than the recorded one. They stay its own, one
    for one, if every provider takes them.
    """
    if len(visible) != len(messages):
        return False
    others: dict[str, str] = {}
    for stored, received in zip(visible, messages, strict=True):
        (role, stored_ids), (received_role, received_ids) = _ids(stored), _ids(received)
        if role != received_role or len(stored_ids) != len(received_ids):
            return False
        for stored_id, received_id in zip(stored_ids, received_ids, strict=True):
            if stored_id != received_id and not _PLAIN_ID.fullmatch(received_id):
                return False
            if others.setdefault(stored_id, received_id) != received_id:
                return False
    return len(set(others.values())) == len(others)


def _keeps_system_messages(ctx: AssembledContext, form: ListForm) -> bool:
    """Return True if the provider takes each system message of the conversation at its place."""
    if form.format != "anthropic":
        return form.format != "gemini"
    fragments = anthropic.conversation_parts(ctx).fragments
    messages = (message for message in ctx.messages if message.role == "system")
    return system_blocks(fragments) == system_blocks(map(partial(anthropic.fragment, model=ctx.model), messages))


def _is_changed_tool(warning: ContextWarning) -> bool:
    return warning.source == TOOLS_ORIGIN and any(mark in warning.message for mark in (" changed: ", "omitted"))


def _ids(message: Message) -> tuple[str, list[str]]:
    ids = [call.id for call in message.calls()] + [result.call_id for result in message.results()]
    return message.role, ids


def _loses_parts(ctx: AssembledContext, form: ListForm) -> bool:
    """Return whether the list's format cannot send something that the list has, or not in its order."""
    if form.format == "openai" and form.is_given:
        return any(NOT_IN_CHAT in warning.message for warning in ctx.warnings)
    if form.format == "gemini":
        return gemini.has_unordered_results(ctx)
    return form.format == "anthropic" and anthropic.has_unpaired_server_tools(ctx)
