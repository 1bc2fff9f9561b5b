"""Who is measured, with which settings, and what the budget of each counts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

BUDGET = 16_000
SUMMARY_WORDS = 300
ITEMS = 50
"""Items that openai-agents is told to keep (`SessionSettings(limit=…)`, which has no default): it counts no tokens."""

Counted: TypeAlias = Literal["whole request", "system and messages", "messages", "no tokens"]


class Peer(Struct, frozen=True):
    """One row: its name, the module and class that drive it, its package, its settings, what its budget counts.

    Variants that differ in a setting alone are not timed again.
    """

    name: str
    place: str
    package: str
    settings: str
    counts: Counted
    is_timed: bool = True


NEXUS = "Nexus"

PEERS: tuple[Peer, ...] = (
    Peer(
        NEXUS,
        "nexus_side:NexusSide",
        "nexus-context-engine",
        "assemble(event, budget=16,000), record; defaults, workspace of four files",
        "whole request",
    ),
    Peer(
        "LangChain trim_messages, documented",
        "langchain_side:TrimDocumented",
        "langchain-core",
        'max_tokens=16,000, strategy="last", include_system=True, start_on="human", end_on=("human", "tool"); '
        "o200k per message",
        "system and messages",
    ),
    Peer(
        "LangChain trim_messages, bare",
        "langchain_side:TrimBare",
        "langchain-core",
        "the same without start_on and end_on",
        "system and messages",
    ),
    Peer(
        "LangChain SummarizationMiddleware",
        "langchain_side:Summarization",
        "langchain",
        'trigger=("tokens", 16,000); defaults: keep=("messages", 20), approximate counter scaled by usage',
        "messages",
    ),
    Peer(
        "LangChain SummarizationMiddleware, keep 8,000 tokens",
        "langchain_side:SummarizationKeepingTokens",
        "langchain",
        'the same with keep=("tokens", 8,000)',
        "messages",
        is_timed=False,
    ),
    Peer(
        "deepagents SummarizationMiddleware",
        "deepagents_side:Summarization",
        "deepagents",
        "create_summarization_middleware(model, backend), max_input_tokens=16,000: trigger at 85 %, keep 10 %; "
        "FilesystemBackend",
        "whole request",
    ),
    Peer(
        "pydantic-ai-harness SlidingWindowCompaction",
        "pydantic_side:SlidingWindow",
        "pydantic-ai-harness",
        "max_tokens=16,000; defaults: keep_messages=40, first user message preserved, counter anchored on usage",
        "whole request",
    ),
    Peer(
        "pydantic-ai-harness SlidingWindowCompaction, keep 8,000 tokens",
        "pydantic_side:SlidingWindowKeepingTokens",
        "pydantic-ai-harness",
        "the same with keep_tokens=8,000",
        "whole request",
        is_timed=False,
    ),
    Peer(
        "pydantic-ai-harness SummarizingCompaction",
        "pydantic_side:Summarizing",
        "pydantic-ai-harness",
        "max_tokens=16,000; defaults: keep_messages=20, first user message preserved, counter anchored on usage",
        "whole request",
    ),
    Peer(
        "pydantic-ai-harness SummarizingCompaction, keep 8,000 tokens",
        "pydantic_side:SummarizingKeepingTokens",
        "pydantic-ai-harness",
        "the same with keep_tokens=8,000",
        "whole request",
        is_timed=False,
    ),
    Peer(
        "haystack SlidingWindowCompactor",
        "haystack_side:SlidingWindow",
        "haystack-ai",
        "CompactionHook(SlidingWindowCompactor(), context_window=16,000); defaults: compact_at=0.7, compact_to=0.4, "
        "counter anchored on usage",
        "whole request",
    ),
    Peer(
        "agno Compaction",
        "agno_side:Folding",
        "agno",
        "compact_at_tokens=16,000; defaults: uncompacted_runs=5, own estimate; cuts between runs only; called before "
        "every call, agno does so per run",
        "whole request",
    ),
    Peer(
        "agno Compaction, keep 4,000 tokens",
        "agno_side:FoldingKeepingTokens",
        "agno",
        "the same with uncompacted_tokens=4,000",
        "whole request",
        is_timed=False,
    ),
    Peer(
        "openai-agents SQLiteSession(limit)",
        "openai_agents_side:Limited",
        "openai-agents",
        f"SessionSettings(limit={ITEMS}), in memory; applied at each user message, as its Runner does",
        "no tokens",
    ),
    Peer(
        "openai-agents ToolOutputTrimmer",
        "openai_agents_side:Trimmed",
        "openai-agents",
        "defaults: recent_turns=2, max_output_chars=500, preview_chars=200",
        "no tokens",
    ),
)


def peer(name: str) -> Peer:
    """The peer of that name."""
    return next(one for one in PEERS if one.name == name)
