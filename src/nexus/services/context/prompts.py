"""Document 000's PromptManager: the system message, and the tools as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nexus.services.tagged import capabilities_block
from nexus.services.tagged_blocks import CORE_IDENTITY
from nexus.types.sanitize import sanitize_text

__all__ = ["CORE_IDENTITY", "PromptManager"]


class PromptManager:
    """The two texts that do not depend on the user."""

    def get_core_identity(self) -> str:
        """Return CORE_IDENTITY, the system message for all users."""
        return CORE_IDENTITY

    def get_capabilities_prompt(self, tool_definitions: Iterable[Mapping[str, Any]]) -> str:
        """Return the block [CAPABILITIES] for definitions in any provider's format, sorted by name. Raises BadTool."""
        return sanitize_text(capabilities_block(tool_definitions))
