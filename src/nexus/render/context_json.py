"""An assembled context as plain JSON values and back. The documented names are document 002's; ours are under `nexus`."""

from __future__ import annotations

from typing import Any

import msgspec

from nexus.context import AssembledContext, Face, Item, Manifest, PrefixReport
from nexus.errors import BadContext
from nexus.policy import Withheld
from nexus.tokens.anchor import Anchor
from nexus.tokens.budget import TokenBudget
from nexus.tokens.model import Model
from nexus.types.block import Block, Warned
from nexus.types.history import History
from nexus.types.ledger_entries import Cut
from nexus.types.message import Message
from nexus.types.repair_report import RepairReport
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
            "window": plain(ctx.window),
            "budget": plain(ctx.token_budget),
            "blocks": plain(ctx.blocks),
            "items": plain(ctx.items),
            "cut": plain(ctx.cut),
            "manifest": plain(ctx.manifest),
            "prefix": plain(ctx.prefix),
            "opensTurn": ctx.opens_turn,
            "warnings": plain(ctx.warnings),
            "repairs": ctx.repairs.changes,
            "anchor": plain(ctx.anchor),
            "seen": plain(ctx.seen),
            "leftOut": plain(ctx.left_out),
            "withheld": plain(ctx.withheld),
            "routing": plain(ctx.routing),
            "identity": plain(ctx.identity),
            "contextJson": ctx.context_json,
            "expectedTokens": ctx.expected_tokens,
            "historyTokens": ctx.history.tokens,
            "report": ctx.report,
        },
    }


def from_json(saved: dict[str, Any], face: Face) -> AssembledContext:
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
            window=msgspec.convert(own["window"], Model),
            blocks=msgspec.convert(own["blocks"], tuple[Block, ...]),
            items=msgspec.convert(own["items"], tuple[Item, ...]),
            cut=msgspec.convert(own["cut"], Cut | None),
            manifest=msgspec.convert(own["manifest"], Manifest),
            prefix=msgspec.convert(own["prefix"], PrefixReport),
            opens_turn=own["opensTurn"],
            warnings=msgspec.convert(own["warnings"], tuple[Warned, ...]),
            repairs=RepairReport(msgspec.convert(own["repairs"], dict[str, int])),
            anchor=msgspec.convert(own.get("anchor"), Anchor | None),
            seen=msgspec.convert(own.get("seen", ()), tuple[Block, ...]),
            left_out=msgspec.convert(own.get("leftOut", ()), tuple[Block, ...]),
            withheld=msgspec.convert(own.get("withheld", ()), tuple[Withheld, ...]),
            routing=msgspec.convert(own.get("routing", {}), Routing),
            identity=msgspec.convert(own.get("identity", {}), Identity),
            context_json=msgspec.convert(own.get("contextJson", {}), dict[str, Any]),
            face=face,
        )
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        text = f"this is not a context that `nexus assemble --save` wrote ({_what(error)})"
        raise BadContext(text) from error


def _what(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
