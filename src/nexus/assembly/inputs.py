"""What assembly needs besides the request, brought together by the engine or read back from a recorded call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from nexus.assembly.fit.view import View
from nexus.assembly.fit.window import Window
from nexus.context import Renderers
from nexus.policy import DeniedTool
from nexus.tokens.budget import TokenBudget, compute_budget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning
from nexus.types.ledger_entries import Entry
from nexus.types.message import Message
from nexus.types.request import Request
from nexus.workspace.source_context import Source, SourceContext

OUTPUT_SETTINGS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""What providers call the most tokens of a reply."""


@dataclass(frozen=True, slots=True)
class AssemblyInputs:
    """What assembly needs besides the request: resolved names, the filled window, and what was sent last.

    `after_mark` is the seq of the session's newest mark. `may_compact` is false where a compaction was just undone.
    `frozen` are the system slot's blocks that the session goes on with, where the profile does not change them meanwhile.
    `withheld` are tools that the request may not offer, `warned` what is worth a warning before anything is gathered.
    """

    source_context: SourceContext
    sources: Mapping[str, Source]
    model: Model
    counter: TokenCounter
    factor: float
    window: Window
    mark: Entry | None
    view: View
    cut_number: int
    instructions: tuple[Message, ...]
    last_manifest: Mapping[str, Any] | None
    thread: int
    workspace: str
    renderers: Renderers
    after_mark: int = 0
    may_compact: bool = True
    frozen_blocks: tuple[Block, ...] | None = None
    denied_tools: tuple[DeniedTool, ...] = ()
    warnings: tuple[ContextWarning, ...] = ()


def plan_budget(request: Request, model: Model) -> TokenBudget:
    """The budget before anything is counted; what the request asks for as output is its reserve."""
    asked = [request.model_config.get(name) for name in OUTPUT_SETTINGS]
    reserve = next((tokens for tokens in asked if isinstance(tokens, int)), None)
    budget = compute_budget(model, available_tokens=request.available_tokens, reserve_response=reserve)
    if not request.most_tokens:
        return budget
    return msgspec.structs.replace(budget, available=min(budget.available, request.most_tokens))
