"""An assembled context as plain JSON values and back. The documented names are document 002's; ours are under `nexus`."""

from __future__ import annotations

from typing import Any

import msgspec

from nexus.context import (
    Accounting,
    AssembledContext,
    EngineState,
    Manifest,
    PrefixReport,
    Provenance,
    Renderers,
    RepairReport,
    TokenLine,
)
from nexus.errors import BadContext
from nexus.policy import DeniedTool
from nexus.tokens.anchor import Anchor
from nexus.tokens.budget import TokenBudget
from nexus.tokens.model import Model
from nexus.types.block import Block, ContextWarning
from nexus.types.history import History
from nexus.types.ledger_entries import Cut
from nexus.types.message import Message
from nexus.types.request import Identity, Routing
from nexus.types.tool_definition import ToolSpec

FORM = 1
"""Raised when the saved form changes."""


def to_json(ctx: AssembledContext) -> dict[str, Any]:
    """Everything: the documented fields, and manifest, account, cut and event, from which `record` works."""
    plain = msgspec.to_builtins
    return {
        "systemPrompt": ctx.system_prompt,
        "history": plain(list(ctx.history)),
        "currentMessage": plain(ctx.current_message),
        "tools": plain(ctx.tools),
        "model": ctx.model,
        "provider": ctx.provider,
        "modelConfig": ctx.model_config,
        "tokenBudget": ctx.token_budget.to_json(),
        "sessionLabel": ctx.session_label,
        "parentTurnId": ctx.parent_turn_id,
        "role": ctx.role,
        "toolsetName": ctx.toolset_name,
        "permissionsGranted": list(ctx.permissions_granted),
        "sourceEventId": ctx.source_event_id,
        "workspacePath": ctx.workspace_path,
        "nexus": {
            "form": FORM,
            "current": plain(ctx.current),
            "event": plain(ctx.event),
            "window": plain(ctx.accounting.model_info),
            "budget": plain(ctx.token_budget),
            "blocks": plain(ctx.provenance.blocks),
            "items": plain(ctx.accounting.token_breakdown),
            "cut": plain(ctx.cut),
            "manifest": plain(ctx.provenance.manifest),
            "prefix": plain(ctx.accounting.prefix),
            "opensTurn": ctx.provenance.starts_turn,
            "warnings": plain(ctx.warnings),
            "repairs": ctx.repairs.changes,
            "anchor": plain(ctx.accounting.anchor),
            "seen": plain(ctx.provenance.already_in_history),
            "leftOut": plain(ctx.provenance.omitted_blocks),
            "withheld": plain(ctx.provenance.denied_tools),
            "routing": plain(ctx.provenance.routing),
            "identity": plain(ctx.provenance.identity),
            "contextJson": ctx.provenance.context_json,
            "expectedTokens": ctx.expected_tokens,
            "historyTokens": ctx.history.tokens,
            "report": ctx.report,
        },
    }


def from_json(saved: dict[str, Any], renderers: Renderers) -> AssembledContext:
    """The context that `to_json` saved; it can be shown and recorded again. Raises BadContext."""
    try:
        own = saved["nexus"]
        plain = {name: saved[name] for name in ("systemPrompt", "model", "provider", "sessionLabel", "workspacePath")}
        msgspec.convert(plain, dict[str, str])
        if own["form"] != FORM:
            raise BadContext(f"the saved context has form {own['form']}, this Nexus reads {FORM}: assemble it again")
        messages = msgspec.convert(saved["history"], list[Message])
        return AssembledContext(
            system_prompt=saved["systemPrompt"],
            history=History.of(messages, own["historyTokens"]),
            current=msgspec.convert(own["current"], tuple[Message, ...]),
            event=msgspec.convert(own["event"], tuple[Message, ...]),
            tools=msgspec.convert(saved["tools"], tuple[ToolSpec, ...]),
            model=saved["model"],
            provider=saved["provider"],
            model_config=saved["modelConfig"],
            token_budget=msgspec.convert(own["budget"], TokenBudget),
            session_label=saved["sessionLabel"],
            parent_turn_id=saved["parentTurnId"],
            role=saved["role"],
            toolset_name=saved["toolsetName"],
            permissions_granted=tuple(saved["permissionsGranted"]),
            source_event_id=saved["sourceEventId"],
            workspace_path=saved["workspacePath"],
            accounting=Accounting(
                model_info=msgspec.convert(own["window"], Model),
                prefix=msgspec.convert(own["prefix"], PrefixReport),
                token_breakdown=msgspec.convert(own["items"], tuple[TokenLine, ...]),
                anchor=msgspec.convert(own.get("anchor"), Anchor | None),
            ),
            provenance=Provenance(
                manifest=msgspec.convert(own["manifest"], Manifest),
                starts_turn=own["opensTurn"],
                blocks=msgspec.convert(own["blocks"], tuple[Block, ...]),
                already_in_history=msgspec.convert(own.get("seen", ()), tuple[Block, ...]),
                omitted_blocks=msgspec.convert(own.get("leftOut", ()), tuple[Block, ...]),
                denied_tools=msgspec.convert(own.get("withheld", ()), tuple[DeniedTool, ...]),
                routing=msgspec.convert(own.get("routing", {}), Routing),
                identity=msgspec.convert(own.get("identity", {}), Identity),
                context_json=msgspec.convert(own.get("contextJson", {}), dict[str, Any]),
            ),
            cut=msgspec.convert(own["cut"], Cut | None),
            warnings=msgspec.convert(own["warnings"], tuple[ContextWarning, ...]),
            repairs=RepairReport(msgspec.convert(own["repairs"], dict[str, int])),
            _engine=EngineState(renderers),
        )
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        text = f"this is not a context that `nexus assemble --save` wrote ({_what(error)})"
        raise BadContext(text) from error


def _what(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
