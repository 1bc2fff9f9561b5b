"""Document 000's context service: five messages for a model, of an identity, tools, memory, a friend and the moment.

A thin door. `nexus.render.tagged` makes and reads the blocks; `reading` takes what a program has (rows of a history,
times, zones) and says what is wrong with it; `prompts`, `formatters` and `builder` have the documented names.
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
