"""Document 000's PromptManager: the system message, and the tools as text. The identity's words are in `nexus.workspace.prompts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nexus.render.tagged.blocks import capabilities_block
from nexus.types.sanitize import sanitize_text
from nexus.workspace.prompts.core_identity import CORE_IDENTITY

__all__ = ["CORE_IDENTITY", "PromptManager"]


class PromptManager:
    """The two texts that do not depend on who speaks."""

    def get_core_identity(self) -> str:
        """CORE_IDENTITY: the system message, the same for all users."""
        return CORE_IDENTITY

    def get_capabilities_prompt(self, tool_definitions: Iterable[Mapping[str, Any]]) -> str:
        """The block [CAPABILITIES] of definitions in any provider's form, sorted by name. Raises BadTool."""
        return sanitize_text(capabilities_block(tool_definitions))
