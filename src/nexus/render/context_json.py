"""Assembled contexts as JSON values and back, and the table of their renderers, which assembly injects into them.

The values have document 002's names, and everything else under `nexus`.
"""

from __future__ import annotations

from typing import Annotated, Any

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
from nexus.errors import UnreadableFile
from nexus.policy import DeniedTool
from nexus.providers import anthropic, gemini, gemini_rest, openai, openai_responses
from nexus.providers.body_hash import body_hash
from nexus.render.report import report
from nexus.tokens.budget import TokenBudget
from nexus.tokens.calibration import Anchor
from nexus.tokens.model import Model
from nexus.types.block import PREAMBLE, Block, ContextWarning
from nexus.types.decoding import decodable
from nexus.types.history import History, Memory
from nexus.types.ledger_entries import Cut
from nexus.types.message import Message
from nexus.types.sanitize import MAX_LEVELS
from nexus.types.settings import AgentRole, Settings, with_neutral_names
from nexus.types.tool_definition import ToolSpec
from nexus.types.validation import check_json

FORM = 1
"""Version of the saved format."""

SAVED_LEVELS = MAX_LEVELS + 16
"""Nesting of a saved context: tool definitions and settings are inside of it."""


def to_json(ctx: AssembledContext) -> dict[str, Any]:
    """Return the documented fields and, under `nexus`, all that `record` needs later."""
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
            **({"showsOneTurn": True} if ctx.provenance.memory is not None else {}),
            "warnings": plain(ctx.warnings),
            "repairs": ctx.repairs.changes,
            "anchor": plain(ctx.accounting.anchor),
            "seen": plain(ctx.provenance.already_in_history),
            "leftOut": plain(ctx.provenance.omitted_blocks),
            "withheld": plain(ctx.provenance.denied_tools),
            "routing": _routing(ctx),
            "identity": {name: getattr(ctx.provenance.settings, name) for name in _IDENTITY},
            "contextJson": ctx.provenance.context_json,
            "expectedTokens": ctx.expected_tokens,
            "historyTokens": ctx.history.tokens,
            "report": ctx.report,
        },
    }


_IDENTITY = ("principal", "persona", "user_profile")
_ROUTING = ("role", "task", "manager", "manager_call")


def _routing(ctx: AssembledContext) -> dict[str, Any]:
    fields = {name: getattr(ctx.provenance.settings, name) for name in _ROUTING}
    return {"session": ctx.session_label, **fields, "own": False}


def _convert(value: object, kind: Any) -> Any:
    return msgspec.convert(value, decodable(kind))


def _settings(extra: dict[str, Any]) -> Settings:
    """Return the settings that a saved context has."""
    routing = _convert(extra.get("routing", {}), dict[str, Any])
    identity = _convert(extra.get("identity", {}), dict[str, Any])
    stored = {name: routing[name] for name in _ROUTING if name in routing}
    stored |= {name: identity[name] for name in _IDENTITY if name in identity}
    return _convert(stored, Settings)


def from_json(saved: dict[str, Any]) -> AssembledContext:
    """Return the context that `to_json` saved, for display and `record`. Raises UnreadableFile."""
    try:
        check_json(saved, SAVED_LEVELS)
        # Keys that are read with `get` were added later: contexts saved before have none.
        extra = saved["nexus"]
        plain = {name: saved[name] for name in ("systemPrompt", "model", "provider", "sessionLabel", "workspacePath")}
        _convert(plain, dict[str, str])
        if extra["form"] != FORM:
            raise UnreadableFile(  # noqa: TRY301 - another reason than the other errors here
                f"saved context has format {extra['form']} instead of {FORM} (assemble it again)", code="bad_context"
            )
        messages = _convert(saved["history"], list[Message])
        return AssembledContext(
            system_prompt=saved["systemPrompt"],
            history=History.of(messages, _convert(extra["historyTokens"], int)),
            current=_convert(extra["current"], Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]),
            event=_convert(extra["event"], tuple[Message, ...]),
            tools=_convert(saved["tools"], tuple[ToolSpec, ...]),
            model=saved["model"],
            provider=saved["provider"],
            model_config=with_neutral_names(_convert(saved["modelConfig"], dict[str, Any])),
            token_budget=_convert(extra["budget"], TokenBudget),
            session_label=saved["sessionLabel"],
            parent_turn_id=_convert(saved["parentTurnId"], str | None),
            role=_convert(saved["role"], AgentRole),
            toolset_name=_convert(saved["toolsetName"], str),
            permissions_granted=_convert(saved["permissionsGranted"], tuple[str, ...]),
            source_event_id=_convert(saved["sourceEventId"], str | None),
            workspace_path=saved["workspacePath"],
            accounting=Accounting(
                model_info=_convert(extra["window"], Model),
                prefix=_convert(extra["prefix"], PrefixReport),
                token_breakdown=_convert(extra["items"], tuple[TokenLine, ...]),
                anchor=_convert(extra.get("anchor"), Anchor | None),
            ),
            provenance=Provenance(
                manifest=_convert(extra["manifest"], Manifest),
                starts_turn=_convert(extra["opensTurn"], bool),
                blocks=_convert(extra["blocks"], tuple[Block, ...]),
                already_in_history=_convert(extra.get("seen", ()), tuple[Block, ...]),
                omitted_blocks=_convert(extra.get("leftOut", ()), tuple[Block, ...]),
                denied_tools=_convert(extra.get("withheld", ()), tuple[DeniedTool, ...]),
                settings=_settings(extra),
                context_json=_convert(extra.get("contextJson", {}), dict[str, Any]),
                memory=_memory(extra),
            ),
            cut=_convert(extra["cut"], Cut | None),
            warnings=_convert(extra["warnings"], tuple[ContextWarning, ...]),
            repairs=RepairReport(_convert(extra["repairs"], dict[str, int])),
            _engine=EngineState(RENDERERS),
        )
    except UnreadableFile:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, KeyError):
            reason = f"{error} missing"
        else:
            reason = str(error)
        raise UnreadableFile(f"not a context saved by `nexus assemble --save`: {reason}", code="bad_context") from error


def _memory(extra: dict[str, Any]) -> Memory | None:
    """Return the blocks that report earlier turns: the preamble's last ones of the session, perhaps in numbered parts."""
    if not _convert(extra.get("showsOneTurn", False), bool):
        return None
    blocks: list[Block] = _convert(extra["blocks"], list[Block])
    reporting = [block for block in blocks if (block.slot, block.layer) == (PREAMBLE, "Session")]
    if reporting:
        return Memory(reporting[-1].name.rstrip(" 0123456789"), reporting[-1].source)
    return Memory("memory", "")


RENDERERS = Renderers(
    openai=openai.body,
    anthropic=anthropic.body,
    gemini=gemini.body,
    gemini_rest=gemini_rest.body,
    responses=openai_responses.body,
    report=report,
    as_json=to_json,
    body_hash=body_hash,
)
