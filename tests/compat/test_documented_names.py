"""The documents' own names: no package of an old name, and for each import that a document prints a row that says what it is."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import nexus

ROOT = Path(__file__).parents[2]
PRINTED = {
    "tagged-dialogue.md": [
        "nexus.services.context.ContextBuilder", "nexus.services.context.prompts.PromptManager",
        "nexus.services.context.formatters.MemoryFormatter", "nexus.services.context.formatters.FriendsInfoFormatter",
        "nexus.services.context.formatters.MomentFormatter", "nexus.services.context.CORE_IDENTITY",
        "nexus.tools.ToolRegistry",
    ],
    "turn-log.md": [
        "nexus.turnlog.reader.violations", "nexus.turnlog.live.TurnLog",
        "nexus.turnlog.threads.thread_tools",
    ],
    "roles.md": [
        "nexus.broker.build_system_prompt", "nexus.broker.build_worker_system_prompt",
        "nexus.broker.build_current_message", "nexus.broker.build_history_messages",
    ],
    "overflow.md": [
        "nexus.broker.ensure_budget", "nexus.broker.handle_overflow", "nexus.broker.trigger_compaction",
        "nexus.broker.get_model_limit",
    ],
    "workspace-builder.md": [
        "nexus.compat.nanobot.agent.context.ContextBuilder", "nexus.compat.nanobot.agent.ContextBuilder", "nexus.compat.nanobot.session.manager.SessionManager",
        "nexus.compat.nanobot.agent.memory.MemoryStore", "nexus.compat.nanobot.agent.skills.SkillsLoader",
        "nexus.compat.nanobot.agent.loop.AgentLoop", "nexus.compat.nanobot.bus.queue.MessageBus",
        "nexus.compat.nanobot.bus.events.InboundMessage", "nexus.compat.nanobot.providers.base.LLMProvider",
    ],
    "context-module.md": [
        "nexus.compat.nexus3.context.ContextManager", "nexus.compat.nexus3.context.ContextConfig", "nexus.compat.nexus3.context.PromptLoader",
        "nexus.compat.nexus3.context.prompt_loader.FilePromptSource", "nexus.compat.nexus3.context.prompt_loader.PromptSource",
        "nexus.compat.nexus3.context.prompt_loader.get_system_info", "nexus.Message", "nexus.ToolCall", "nexus.ToolResult",
        "nexus.compat.nexus3.context.logger.LedgerLogger", "nexus.compat.nexus3.core.Message",
        "nexus.compat.nexus3.core.Role", "nexus.compat.nexus3.core.ToolCall", "nexus.compat.nexus3.core.ToolResult",
        "nexus.compat.nexus3.session.SessionLogger", "nexus.compat.nexus3.session.LogConfig",
        "nexus.compat.nexus3.rpc.pool.AgentPool", "nexus.compat.nexus3.rpc.pool.SharedComponents",
        "nexus.compat.nexus3.rpc.pool.AgentConfig", "nexus.compat.nexus3.rpc.session.Session",
    ],
}  # fmt: skip
"""Each page with what stands there for the names that its document prints (000 to 004)."""


@pytest.mark.parametrize("name", ["nexus3", "nanobot"])
def test_no_package_has_an_old_name(name: str) -> None:
    """Decided on all documents: "No alias packages (`nexus3`, `nanobot`): a mapping table in the docs says what to import"."""
    assert not (Path(nexus.__file__).parents[1] / name).exists()
    assert find_spec(name) is None


@pytest.mark.parametrize(("page", "names"), PRINTED.items(), ids=PRINTED)
def test_what_the_docs_say_to_import_can_be_imported(page: str, names: list[str]) -> None:
    """Documents 000 to 004, their imports; decided: "a mapping table in the docs says what to import"."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    for name in names:
        module, _, member = name.rpartition(".")
        assert getattr(importlib.import_module(module), member), name
        assert member in text, f"{page} does not name {member}"


def test_the_layers_have_the_documents_names_in_reports() -> None:
    """Decided on all documents: "Names in reports and pages are the documents': Workspace, Persona, Session, Memory, Event"."""
    ctx = nexus.open(None, ledger=":memory:").assemble("hi", profile="tagged")
    named = ("Workspace", "Persona", "Session", "Memory", "Event")
    assert {item.layer for item in ctx.accounting.token_breakdown} <= set(named)
    assert [name for name in ("Workspace", "Persona", "Session", "Event") if f" {name} " not in ctx.report] == []
