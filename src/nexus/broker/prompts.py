"""System prompts by document 002's `buildSystemPrompt` and `buildWorkerSystemPrompt`.

They are made by the sources of the profile `layered`, in its order, joined by a blank line. Nothing in them depends on
the model, the provider, the platform or the time.
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
from nexus.workspace.environment.probe import EnvironmentSnapshot
from nexus.workspace.files.reader import Files, home_folder
from nexus.workspace.files.templates import template_texts
from nexus.workspace.source_context import SourceContext
from nexus.workspace.source_context import WorkspaceContext as EngineWorkspace
from nexus.workspace.sources.registry import SOURCES
from nexus.workspace.sources.session_blocks import instructions

_FACTS = {"host": "Host", "os": "OS", "arch": "Arch"}


class WorkspaceContext(Struct, frozen=True):
    """A workspace: its folder, and the user's own (`NEXUS_HOME`, else `~/.nexus`, if none is named)."""

    folder: str
    home: str = ""


class PersonaContext(Struct, frozen=True):
    """Who answers: the persona's name (empty: SOUL.md and IDENTITY.md of the root), and what it may do."""

    name: str = ""
    permissions: Permissions = Permissions()


def build_system_prompt(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext = "",
    nexus_env: Environment | None = None,
    runtime: Mapping[str, str] | None = None,
    role: AgentRole = "unified",
) -> str:
    """Rules, user, soul, identity, permissions, environment, host; then messaging rules, or a worker's instructions.

    `workspace` is a folder or more, `persona` a name or more, `runtime` has `host`, `os` and `arch`. A worker's
    instructions stand at the end and name no task, as the document prints it: `build_worker_system_prompt` has the task.
    Raises WorkspaceMissing.
    """
    desk = _desk(workspace, persona, nexus_env, runtime, Routing(role=role))
    texts = _texts(desk, (name for name in LAYERED.system if name != "subagent"))
    return "\n\n".join([*texts, instructions("")] if role == "worker" else texts)


def build_worker_system_prompt(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext = "",
    task: str = "",
    nexus_env: Environment | None = None,
    runtime: Mapping[str, str] | None = None,
) -> str:
    """The worker's opening with its task; then rules, identity, environment; the runtime information last.

    `persona` is the manager's. Raises EmptyTask, WorkspaceMissing.
    """
    if not task.strip():
        raise EmptyTask("a worker is spawned for a task: give one, or make the prompt of another role")
    desk = _desk(workspace, persona, nexus_env, runtime, Routing(role="worker", task=task))
    return "\n\n".join(_texts(desk, LAYERED.system))


def _desk(
    workspace: str | Path | WorkspaceContext,
    persona: str | PersonaContext,
    nexus_env: Environment | None,
    runtime: Mapping[str, str] | None,
    routing: Routing,
) -> SourceContext:
    around = workspace if isinstance(workspace, WorkspaceContext) else WorkspaceContext(str(workspace))
    who = persona if isinstance(persona, PersonaContext) else PersonaContext(persona)
    folder = Path(around.folder).expanduser()
    if not folder.is_dir():
        raise WorkspaceMissing(f"there is no folder {folder}; `nexus init {folder}` makes a workspace")
    home = Path(around.home).expanduser() if around.home else home_folder()
    host = {shown: str((runtime or {}).get(name, "")) for name, shown in _FACTS.items()}
    surroundings = EngineWorkspace(Files(folder.resolve(), templates=template_texts()), Files(home), host)
    request = Request(Event(), routing, Identity(persona=who.name), who.permissions)
    return SourceContext(request, surroundings, 0, "", EnvironmentSnapshot(survey=lambda _: nexus_env))


def _texts(desk: SourceContext, names: Iterable[str]) -> list[str]:
    """The texts of the named sources, empty ones left out."""
    return [sanitize_text(block.text) for name in names for block in SOURCES[name].function(desk)[0] if block.text]
