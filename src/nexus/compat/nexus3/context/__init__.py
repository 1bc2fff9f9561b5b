"""The context module of document 004: one conversation with system prompt, token budget, truncation and compaction.

Messages are stored in a ledger (in memory unless a logger for another one is passed), and `messages` is a view of them;
the rooms of Nexus count, repair, summarize and read files. `token_counter` counts, `truncation` chooses groups, `view`
makes them valid, `compaction` summarizes, `logger` writes into a ledger, `prompt_loader` reads `NEXUS.md` files, and
`manager` connects them.
"""

from __future__ import annotations

from nexus.compat.nexus3.context.compaction import (
    CompactionResult,
    build_summarize_prompt,
    create_summary_message,
    select_messages_for_compaction,
)
from nexus.compat.nexus3.context.manager import ContextConfig, ContextManager
from nexus.compat.nexus3.context.prompt_loader import LoadedPrompt, PromptLoader
from nexus.compat.nexus3.context.token_counter import (
    SimpleTokenCounter,
    TiktokenCounter,
    TokenCounter,
    get_token_counter,
)

__all__ = [  # noqa: RUF022 - the printed list, in its printed order
    "CompactionResult",
    "build_summarize_prompt",
    "create_summary_message",
    "select_messages_for_compaction",
    "LoadedPrompt",
    "PromptLoader",
    "TokenCounter",
    "SimpleTokenCounter",
    "TiktokenCounter",
    "get_token_counter",
    "ContextManager",
    "ContextConfig",
]
