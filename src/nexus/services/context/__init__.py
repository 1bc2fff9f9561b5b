"""Document 000's context service: five messages with an identity, tools, memory, a friend and the current message.

`nexus.services.tagged` formats and parses the blocks; `formatters` parses an application's data (rows of a history, times,
zones) and reports invalid values. The modules have the documented names.
"""

from __future__ import annotations

from nexus.services.context.builder import ContextBuilder, Dialogue
from nexus.services.context.formatters import FriendsInfoFormatter, MemoryFormatter, MomentFormatter
from nexus.services.context.prompts import CORE_IDENTITY, PromptManager

__all__ = [
    "CORE_IDENTITY",
    "ContextBuilder",
    "Dialogue",
    "FriendsInfoFormatter",
    "MemoryFormatter",
    "MomentFormatter",
    "PromptManager",
]
