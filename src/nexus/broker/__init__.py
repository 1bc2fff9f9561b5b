"""The interface of document 002: the broker's functions as free functions.

System prompts consist of the sources of the profile `layered`, in its order, joined by a blank line. They do not depend
on model, provider, platform or time. Messages are those of `buildHistoryMessages` and `buildCurrentMessage`. Budgets
are context windows of models, and compaction when a context is full or too large.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.gather import event_messages
from nexus.assembly.profiles.builtin import LAYERED
from nexus.broker.broker import Broker
from nexus.broker.events import EventResult, SessionEvent
from nexus.broker.lookups import CompactionTurn, find_latest_compaction, get_compaction, get_messages_by_turn_id
from nexus.broker.queue_modes import QueueMode
from nexus.context import AssembledContext
from nexus.engine import Engine, available_tokens
from nexus.engine.overflow_recovery import Answer, recover
from nexus.errors import BadEvent, BadSetting, NotFound
from nexus.ledger.replay import visible_messages
from nexus.summarization import CompactionOutcome
from nexus.text.frames import escape
from nexus.tokens.budget import TokenBudget
from nexus.tokens.model import resolve
from nexus.types.block import Block
from nexus.types.compaction_plan import COMPACT_AT, COMPACT_TO, RECOVER_TO, Trigger
from nexus.types.environment import Environment
from nexus.types.history import SUMMARY_MARKER
from nexus.types.message import Message, Text
from nexus.types.request import Event, Request
from nexus.types.sanitize import sanitize_text
from nexus.types.settings import AgentRole, CallArguments, Settings
from nexus.workspace.environment.machine import EnvironmentSnapshot
from nexus.workspace.files.reader import Files, home_folder
from nexus.workspace.prompts import template_texts
from nexus.workspace.source_context import EngineWorkspace, SourceContext
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.session_blocks import subagent_instructions

__all__ = [
    "MODEL_LIMITS",
    "Broker",
    "CompactionTurn",
    "EventResult",
    "PersonaContext",
    "QueueMode",
    "SessionEvent",
    "WorkspaceContext",
    "build_current_message",
    "build_history_messages",
    "build_system_prompt",
    "build_worker_system_prompt",
    "ensure_budget",
    "find_latest_compaction",
    "get_compaction",
    "get_messages_by_turn_id",
    "get_model_limit",
    "handle_overflow",
    "retry_overflow",
    "trigger_compaction",
]

_HOST_LABELS = {"host": "Host", "os": "OS", "arch": "Arch"}

MODEL_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "claude-sonnet-4": 200_000,
        "claude-opus-4": 200_000,
        "gpt-4o": 128_000,
        "o1": 200_000,
        "o3": 200_000,
    }
)
"""Context windows that document 002 prints, in tokens."""

_DATE = re.compile(r"-\d{8}\Z")

_SHELL: tuple[dict[str, Any], ...] = (
    {"name": "bash", "description": "", "parameters": {"type": "object", "properties": {}}},
)
_PLATFORM = Event(platform="any")
"""Document 002's agents have the CLI `nexus` and speak on a platform; the prompt names neither the tool nor the place."""


class WorkspaceContext(Struct, frozen=True):
    """A workspace: its folder, and the user's folder (by default `NEXUS_HOME`, else `~/.nexus`)."""

    folder: str
    home: str = ""


class PersonaContext(Struct, frozen=True):
    """The persona's name (empty: SOUL.md and IDENTITY.md of the workspace's root), toolset and permissions."""

    name: str = ""
    toolset: str = ""
    permissions: tuple[str, ...] = ()


def build_system_prompt(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext = "",
    nexus_env: Environment | None = None,
    runtime: Mapping[str, str] | None = None,
    role: AgentRole = "unified",
) -> str:
    """Return the system prompt: rules, persona, permissions, environment, host, and the role's instructions.

    A worker's instructions are at the end and name no task, as the document prints them; `build_worker_system_prompt`
    names the task.

    Args:
        workspace: A folder, or folder and user's folder.
        persona: A name, or name and permissions.
        nexus_env: The environment, if any.
        runtime: `host`, `os` and `arch`.
        role: The agent's role.

    Raises:
        NotFound: The folder does not exist.
    """
    context = _source_context(workspace, persona, nexus_env, runtime, Settings(role=role))
    texts = _texts(context, (name for name in LAYERED.system if name != "subagent"))
    return "\n\n".join([*texts, subagent_instructions("")] if role == "worker" else texts)


def build_worker_system_prompt(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext = "",
    task: str = "",
    nexus_env: Environment | None = None,
    runtime: Mapping[str, str] | None = None,
) -> str:
    """Return the worker's opening with its task, then rules, identity and environment, then the runtime information.

    `persona` is the manager's. Raises BadSetting, NotFound.
    """
    if not task.strip():
        raise BadSetting("worker task missing (give a task, or build the prompt of another role)", code="empty_task")
    context = _source_context(workspace, persona, nexus_env, runtime, Settings(role="worker", task=task))
    return "\n\n".join(_texts(context, LAYERED.system))


def _source_context(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext,
    nexus_env: Environment | None,
    runtime: Mapping[str, str] | None,
    settings: Settings,
) -> SourceContext:
    if isinstance(workspace, WorkspaceContext):
        paths = workspace
    else:
        paths = WorkspaceContext(str(workspace))
    if isinstance(persona, PersonaContext):
        answering = persona
    else:
        answering = PersonaContext(persona)
    folder = Path(paths.folder).expanduser()
    if not folder.is_dir():
        raise NotFound(f"folder {folder} not found (make a workspace: nexus init {folder})", code="workspace_missing")
    if paths.home:
        home = Path(paths.home).expanduser()
    else:
        home = home_folder()
    host = {label: str((runtime or {}).get(name, "")) for name, label in _HOST_LABELS.items()}
    workspace_context = EngineWorkspace(Files(folder.resolve(), templates=template_texts()), Files(home), host)
    settings = replace(settings, persona=answering.name, toolset=answering.toolset, permissions=answering.permissions)
    request = Request(_PLATFORM, settings=settings, tools=_SHELL)
    return SourceContext(request, workspace_context, 0, "", EnvironmentSnapshot(survey=lambda _: nexus_env))


def _texts(context: SourceContext, names: Iterable[str]) -> list[str]:
    """Return the texts of sources, without empty ones."""
    return [sanitize_text(block.text) for name in names for block in SOURCES[name].function(context)[0] if block.text]


def build_current_message(event: Event, role: AgentRole = "unified") -> Message:
    """Return the message of an event: time, zone, platform, actions (not for workers) and hook data, then its content.

    Without a time the event happens now. The metadata are notes of the message, which are joined with its content by
    a blank line in the request. Raises BadEvent for an event of tool results only, which are messages themselves.
    """
    if event.results and not (event.content or event.attachments):
        raise BadEvent("event has no current message: tool results are messages themselves", code="empty_event")
    at_ms = event.at_ms or time.time_ns() // 1_000_000
    context = SourceContext(Request(event, settings=Settings(role=role)), EngineWorkspace(), at_ms, str(event.timezone))
    notes: list[Block] = [block for name in LAYERED.current for block in SOURCES[name].function(context)[0]]
    return event_messages(event, notes, at_ms)[-1]


def build_history_messages(nx: Engine, thread: str | int) -> list[Message]:
    """Return the history of a session, or of a thread by its number: the live summary, and all messages that it kept.

    Without a compaction it is the whole history. Leading system messages belong to the system prompt and are omitted.
    Unlike in `nx.assemble` the history is not cut to a budget. Raises NoSuchSession, LedgerError.
    """
    with nx.ledger.store.snapshot():
        if isinstance(thread, int):
            number = thread
        else:
            number = nx.ledger.thread(thread)
        visible = visible_messages(nx.ledger.store, number)
        opening = {row.ref for row in nx.ledger.store.instructions(number)}
    summary = [Message("user", (Text(f"{SUMMARY_MARKER}\n{escape(visible.summary)}"),))] if visible.summary else []
    return [*summary, *(row.message for row in visible.rows if row.ref not in opening)]


def get_model_limit(model: str) -> int:
    """Return the context window of a model in tokens (document 002).

    The printed number for a printed name, with or without a date at its end; else the shipped model table's; else
    128,000.
    """
    printed = MODEL_LIMITS.get(_DATE.sub("", model))
    if printed is not None:
        return printed
    return resolve(model).context_tokens


def ensure_budget(
    nx: Engine, budget: TokenBudget, session_label: str, *, high_mark: float = COMPACT_AT, **request: Any
) -> dict[str, bool]:
    """Compact the session to 60 % of the available tokens if it takes more than `high_mark` of them (document 002).

    The size that counts is the context's without omissions: assembly has already cut one that was too large, so its own
    `remaining` is never below zero.

    Args:
        nx: The engine.
        budget: The token budget of a context.
        session_label: The session's label.
        high_mark: Share of the available tokens. 1.0 is the document's rule: only when no token would remain.
        **request: Arguments of `nx.assemble`, such as model, tools and profile.

    Returns:
        Whether it compacted, under the key `compacted`.
    """
    if budget.wanted <= high_mark * budget.available and budget.wanted < budget.available:
        return {"compacted": False}
    outcome = trigger_compaction(
        nx, session_label, int(COMPACT_TO * budget.available), "context_limit", **_with_budget(budget, request)
    )
    return {"compacted": bool(outcome)}


def handle_overflow(
    nx: Engine, session_label: str, budget: TokenBudget, *, trigger: Trigger = "overflow_recovery", **request: Any
) -> CompactionOutcome:
    """Compact the session to 40 % of the available tokens for a retry (document 002).

    If the rejected context was far below them by our count, the provider's limit is smaller: then to 40 % of that context.
    """
    is_smaller = 0 < budget.wanted < COMPACT_AT * budget.available
    size = budget.wanted if is_smaller else budget.available
    return trigger_compaction(nx, session_label, int(RECOVER_TO * size), trigger, **_with_budget(budget, request))


def retry_overflow(
    nx: Engine,
    ctx: AssembledContext,
    error: object,
    send: Callable[[AssembledContext], Any],
    **request: Unpack[CallArguments],
) -> Answer:
    """Compact to 40 % and retry, then cut and retry, then raise ContextOverflow; see `nexus.extend.recover`."""
    return recover(nx, ctx, error, send, **request)


def trigger_compaction(
    nx: Engine, session_label: str, target_tokens: int, trigger: Trigger = "manual", **request: Unpack[CallArguments]
) -> CompactionOutcome:
    """Compact a session so that its context takes at most `target_tokens` provider tokens (document 002)."""
    available = available_tokens(nx, **request)
    return nx.compact(session_label, share=min(target_tokens / available, 1.0), trigger=trigger, **request)


def _with_budget(budget: TokenBudget, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `assemble` with the available tokens, if the caller had set them."""
    if budget.direct:
        return {"budget": budget.available, **request}
    return {**request}
