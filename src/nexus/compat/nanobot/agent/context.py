"""Document 003's ContextBuilder: the messages of a call as chat messages, made from a workspace and what is passed in.

It is the profile `workspace` without its engine: the same sources, in the same order. The builder keeps no
conversation: the history comes from `nexus.compat.nanobot.session.manager`, and every message has a system prompt that is read anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nexus.errors import EmptyEvent, WorkspaceMissing
from nexus.profiles.builtin import WORKSPACE
from nexus.providers.openai import fragment
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.types.message import Image, Message, Note, Text
from nexus.types.request import Event, Request
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_definition import ToolSource, definitions_of
from nexus.workspace.images.load import media_parts
from nexus.workspace.setup import workspace_context
from nexus.workspace.source_context import SourceContext, drop_repeated_files
from nexus.workspace.sources.event_blocks import RUNTIME_CONTEXT_SOURCE, runtime_context
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.skills import LOADER

READS_FILES: tuple[dict[str, Any], ...] = (
    {"name": LOADER, "description": "", "parameters": {"type": "object", "properties": {}}},
)
"""The tools of an agent whose tools were not named: document 003's reads files, and loads skills so."""


class ContextBuilder:
    """Builds the messages of calls for one workspace. Files are read for each; `warnings` is what was to say of the last.

    `timezone` is the user's: an IANA name, an offset or a browser's minutes (the configuration's if empty, else UTC);
    `clock_ms` gives Unix time in milliseconds. `model` decides how large images are sent. `tools` are the agent's: without
    `read_file` among them skills are loaded by `nexus skill use`. `home` and `config` are those of `nexus.open`. Raises
    WorkspaceMissing, BadConfig.
    """

    def __init__(
        self,
        workspace: str | Path,
        *,
        timezone: str | int = "",
        clock_ms: Callable[[], int] | None = None,
        model: str = "",
        tools: Sequence[dict[str, Any]] | ToolSource | None = None,
        home: str | Path | None = None,
        config: Config | None = None,
    ) -> None:
        self.workspace = Path(workspace).expanduser().resolve()
        if not self.workspace.is_dir():
            raise WorkspaceMissing(
                f"there is no folder {self.workspace}; `nexus init {self.workspace}` makes a workspace"
            )
        self.warnings: tuple[ContextWarning, ...] = ()
        self._around = workspace_context(self.workspace, home, config, "")
        self._timezone = str(self._around.config.timezone if timezone == "" else timezone)
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._model = model or self._around.config.model
        self._tools = READS_FILES if tools is None else definitions_of(tools)

    def build_system_prompt(self, skill_names: list[str] | None = None) -> str:
        """Identity, bootstrap files, memory, active skills and the list of all skills, joined by a blank line.

        The named skills are shown in full beside those that are always active. Raises OverCap where the configuration
        wants no file shortened.
        """
        blocks, warned = self._system(skill_names or ())
        self.warnings = (*self._around.warnings, *warned)
        return "\n\n".join(sanitize_text(block.text) for block in blocks if block.text)

    def build_messages(
        self,
        history: list[dict[str, Any]],
        current_message: str,
        skill_names: list[str] | None = None,
        media: list[str] | None = None,
        channel: str | None = None,
        chat_id: str | None = None,
    ) -> list[dict[str, Any]]:
        """The system prompt, the history as it is given, and the user's message after the runtime metadata: a new list.

        `media` are image files; one that cannot be shown becomes a note before the user's text, and a warning. Raises
        EmptyEvent where there is neither text nor image, OverCap.
        """
        if not current_message.strip() and not media:
            raise EmptyEvent("there is nothing to send: the message has no text and no image")
        system = {"role": "system", "content": self.build_system_prompt(skill_names)}
        runtime = self._build_runtime_context(channel, chat_id)
        return [
            system,
            *history,
            {"role": "user", "content": self._build_user_content(runtime, current_message, media)},
        ]

    def add_assistant_message(
        self,
        messages: list[dict[str, Any]],
        content: str | None,
        tool_calls: list[dict[str, Any]] | None = None,
        reasoning_content: str | None = None,
        thinking_blocks: list[dict[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Appends what the model answered, and returns the same list. Reasoning is there only where it is given.

        An answer without text and calls has "" as its content: without calls, chat completions know no null.
        """
        said: dict[str, Any] = {"role": "assistant", "content": content if tool_calls else content or ""}
        given = {"tool_calls": tool_calls, "reasoning_content": reasoning_content, "thinking_blocks": thinking_blocks}
        messages.append({**said, **{name: value for name, value in given.items() if value}})
        return messages

    def add_tool_result(
        self, messages: list[dict[str, Any]], tool_call_id: str, tool_name: str, result: str
    ) -> list[dict[str, Any]]:
        """Appends what a tool returned, whole and as it is, and returns the same list."""
        messages.append({"role": "tool", "tool_call_id": tool_call_id, "name": tool_name, "content": result})
        return messages

    def _build_runtime_context(self, channel: str | None, chat_id: str | None) -> str:
        """The runtime metadata; `warnings` has what is wrong with the zone."""
        chat = "" if chat_id is None else str(chat_id)  # which is a number on many platforms
        blocks, warned = runtime_context(self._desk(Event(channel=channel or "", chat_id=chat)))
        self.warnings += tuple(warned)
        return "\n".join(block.text for block in blocks)

    def _build_user_content(self, runtime: str, text: str, media: Iterable[str] | None) -> str | list[dict[str, Any]]:
        """Runtime metadata, a blank line and the text as one string; with images: metadata, images, text."""
        shown, warned = media_parts(media or (), self._around, self._model)
        self.warnings += tuple(warned)
        notes = [part.text for part in shown if isinstance(part, Text)]
        said = "\n\n".join(filter(None, (*notes, text.strip() and text)))
        images = (part for part in shown if isinstance(part, Image))
        parts = (
            Note("moment", sanitize_text(runtime), RUNTIME_CONTEXT_SOURCE),
            *images,
            *([Text(sanitize_text(said))] if said else []),
        )
        return fragment(Message("user", parts))[0]["content"]

    def _system(self, skill_names: Iterable[str]) -> tuple[list[Block], list[ContextWarning]]:
        desk = self._desk(Event(), skill_names)
        blocks: list[Block] = []
        warned: list[ContextWarning] = []
        seen: dict[str, str] = {}
        for name in WORKSPACE.system:
            found, notes = SOURCES[name].function(desk)
            kept, repeats = drop_repeated_files(found, seen)
            blocks += kept
            warned += [*notes, *repeats]
        return blocks, warned

    def _desk(self, event: Event, skill_names: Iterable[str] = ()) -> SourceContext:
        request = Request(event, tools=self._tools, skills=tuple(skill_names))
        return SourceContext(request, self._around, self._clock_ms(), self._timezone)
