"""The interface of document 002: the broker's functions as free functions."""

from __future__ import annotations

from nexus.broker.budget import (
    MODEL_LIMITS,
    ensure_budget,
    get_model_limit,
    handle_overflow,
    retry_overflow,
    trigger_compaction,
)
from nexus.broker.messages import build_current_message, build_history_messages
from nexus.broker.prompts import PersonaContext, WorkspaceContext, build_system_prompt, build_worker_system_prompt

__all__ = [
    "MODEL_LIMITS",
    "PersonaContext",
    "WorkspaceContext",
    "build_current_message",
    "build_history_messages",
    "build_system_prompt",
    "build_worker_system_prompt",
    "ensure_budget",
    "get_model_limit",
    "handle_overflow",
    "retry_overflow",
    "trigger_compaction",
]
