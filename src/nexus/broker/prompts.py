"""System prompts as document 002's `buildSystemPrompt` and `buildWorkerSystemPrompt` return them.

They consist of the sources of the profile `layered`, in its order, joined by a blank line. They do not depend on model,
provider, platform or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from nexus.errors import EmptyTask, WorkspaceMissing
from nexus.profiles.builtin import LAYERED
from nexus.types.environment import Environment
from nexus.types.request import AgentRole, Event, Identity, Permissions, Request, Routing
from nexus.types.sanitize import sanitize_text
from nexus.workspace.environment.machine import EnvironmentSnapshot
from nexus.workspace.files.reader import Files, home_folder
from nexus.workspace.prompts import template_texts
from nexus.workspace.source_context import SourceContext
from nexus.workspace.source_context import WorkspaceContext as EngineWorkspace
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.session_blocks import subagent_instructions

_HOST_LABELS = {"host": "Host", "os": "OS", "arch": "Arch"}


class WorkspaceContext(Struct, frozen=True):
    """A workspace: its folder, and the user's folder (by default `NEXUS_HOME`, else `~/.nexus`)."""

    folder: str
    home: str = ""


class PersonaContext(Struct, frozen=True):
    """The persona's name (empty: SOUL.md and IDENTITY.md of the workspace's root) and permissions."""

    name: str = ""
    permissions: Permissions = Permissions()


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
        WorkspaceMissing: The folder does not exist.
    """
    context = _source_context(workspace, persona, nexus_env, runtime, Routing(role=role))
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

    `persona` is the manager's. Raises EmptyTask, WorkspaceMissing.
    """
    if not task.strip():
        raise EmptyTask("worker task missing (give a task, or build the prompt of another role)")
    context = _source_context(workspace, persona, nexus_env, runtime, Routing(role="worker", task=task))
    return "\n\n".join(_texts(context, LAYERED.system))


def _source_context(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext,
    nexus_env: Environment | None,
    runtime: Mapping[str, str] | None,
    routing: Routing,
) -> SourceContext:
    paths = workspace if isinstance(workspace, WorkspaceContext) else WorkspaceContext(str(workspace))
    answering = persona if isinstance(persona, PersonaContext) else PersonaContext(persona)
    folder = Path(paths.folder).expanduser()
    if not folder.is_dir():
        raise WorkspaceMissing(f"folder {folder} not found (make a workspace: nexus init {folder})")
    home = Path(paths.home).expanduser() if paths.home else home_folder()
    host = {label: str((runtime or {}).get(name, "")) for name, label in _HOST_LABELS.items()}
    workspace_context = EngineWorkspace(Files(folder.resolve(), templates=template_texts()), Files(home), host)
    request = Request(Event(), routing, Identity(persona=answering.name), answering.permissions)
    return SourceContext(request, workspace_context, 0, "", EnvironmentSnapshot(survey=lambda _: nexus_env))


def _texts(context: SourceContext, names: Iterable[str]) -> list[str]:
    """Return the texts of sources, without empty ones."""
    return [sanitize_text(block.text) for name in names for block in SOURCES[name].function(context)[0] if block.text]
