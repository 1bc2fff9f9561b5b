"""Document 003's ContextBuilder: chat messages of a call from a workspace and the passed history.

It uses the sources of the profile `workspace`, in the same order, without an engine. The builder keeps no conversation:
the history comes from `nexus.compat.nanobot.session.manager`, and each call has a system prompt that is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nexus.assembly.profiles.builtin import WORKSPACE
from nexus.errors import BadEvent, NotFound
from nexus.providers.openai import fragment
from nexus.types.block import Block, ContextWarning
from nexus.types.config import Config
from nexus.types.message import Image, Message, Note, Text
from nexus.types.request import Event, Request
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import Settings
from nexus.types.tool_definition import ToolSource, tool_definitions
from nexus.workspace.attachments import media_parts
from nexus.workspace.source_context import SourceContext, drop_repeated_files, workspace_context
from nexus.workspace.sources.event_blocks import RUNTIME_CONTEXT_SOURCE, runtime_context
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.skills import LOADER

__all__ = ["AGENT_TOOLS", "ContextBuilder"]

AGENT_TOOLS: tuple[dict[str, Any], ...] = tuple(
    {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}} for name in (LOADER, "exec")
)
"""Tools of an agent whose tools are not passed: document 003's agent reads files and has a shell."""


class ContextBuilder:
    """Builds the messages of calls for one workspace. Files are read in each call; `warnings` are those of the last.

    Args:
        workspace: The workspace folder.
        timezone: The user's: an IANA name, an offset or a browser's minutes (default: the configuration's, else UTC).
        clock_ms: Returns milliseconds since 1970.
        model: Determines the maximum size of images.
        tools: The agent's tools. Without a tool that reads files skills are loaded by `nexus skill use`; without a shell
            too, none are listed.
        home: As for `nexus.open`.
        config: As for `nexus.open`.

    Raises:
        NotFound: The folder does not exist.
        BadConfig: The configuration is invalid.
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
            raise NotFound(
                f"folder {self.workspace} not found (make a workspace: nexus init {self.workspace})",
                code="workspace_missing",
            )
        self.warnings: tuple[ContextWarning, ...] = ()
        self._workspace_context = workspace_context(self.workspace, home, config)
        self._timezone = str(self._workspace_context.config.timezone if timezone == "" else timezone)
        self._clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self._model = model or self._workspace_context.config.model
        if tools is None:
            self._tools = AGENT_TOOLS
        else:
            self._tools = tool_definitions(tools)

    def build_system_prompt(self, skill_names: list[str] | None = None) -> str:
        """Return identity, bootstrap files, memory, active skills and the list of skills, joined by a blank line.

        The named skills are included in full in addition to the always active ones. Raises OverCap if the
        configuration forbids truncating a file.
        """
        context = self._source_context(Event(), skill_names or ())
        blocks: list[Block] = []
        warnings = list(self._workspace_context.warnings)
        files: dict[str, str] = {}
        for name in WORKSPACE.system:
            source_blocks, source_warnings = SOURCES[name].function(context)
            new_blocks, repeats = drop_repeated_files(source_blocks, files)
            blocks += new_blocks
            warnings += [*source_warnings, *repeats]
        self.warnings = tuple(warnings)
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
        """Return a new list: the system prompt, the unchanged history, and the user's message with runtime metadata.

        `media` are image files; one that cannot be read becomes a note before the user's text, and a warning. Raises
        BadEvent without text and image, OverCap.
        """
        if not current_message.strip() and not media:
            raise BadEvent("message empty (give text or an image)", code="empty_event")
        system = {"role": "system", "content": self.build_system_prompt(skill_names)}
        chat = "" if chat_id is None else str(chat_id)  # chat ids are numbers on many platforms
        blocks, zone_warnings = runtime_context(self._source_context(Event(channel=channel or "", chat_id=chat)))
        runtime = "\n".join(block.text for block in blocks)
        media_content, media_warnings = media_parts(media or (), self._workspace_context, self._model)
        self.warnings += (*zone_warnings, *media_warnings)
        notes = [part.text for part in media_content if isinstance(part, Text)]
        text = "\n\n".join(filter(None, (*notes, current_message.strip() and current_message)))
        parts = (
            Note("moment", sanitize_text(runtime), RUNTIME_CONTEXT_SOURCE),
            *(part for part in media_content if isinstance(part, Image)),
            *([Text(sanitize_text(text))] if text else []),
        )
        # One string without images; with images a list of metadata, images and text.
        content = fragment(Message("user", parts))[0]["content"]
        return [system, *history, {"role": "user", "content": content}]

    def add_assistant_message(
        self,
        messages: list[dict[str, Any]],
        content: str | None,
        tool_calls: list[dict[str, Any]] | None = None,
        reasoning_content: str | None = None,
        thinking_blocks: list[dict[str, Any]] | None = None,
    ) -> list[dict[str, Any]]:
        """Append the model's reply, and return the same list. Reasoning is included only if it is passed.

        A reply without text and calls has the content "": in chat completions the content is null only with tool calls.
        """
        message: dict[str, Any] = {"role": "assistant", "content": content if tool_calls else content or ""}
        optional = {
            "tool_calls": tool_calls,
            "reasoning_content": reasoning_content,
            "thinking_blocks": thinking_blocks,
        }
        messages.append({**message, **{name: value for name, value in optional.items() if value}})
        return messages

    def add_tool_result(
        self, messages: list[dict[str, Any]], tool_call_id: str, tool_name: str, result: str
    ) -> list[dict[str, Any]]:
        """Append a tool's result, unchanged, and return the same list."""
        messages.append({"role": "tool", "tool_call_id": tool_call_id, "name": tool_name, "content": result})
        return messages

    def _source_context(self, event: Event, skill_names: Iterable[str] = ()) -> SourceContext:
        request = Request(event, settings=Settings(skills=tuple(skill_names)), tools=self._tools)
        return SourceContext(request, self._workspace_context, self._clock_ms(), self._timezone)
