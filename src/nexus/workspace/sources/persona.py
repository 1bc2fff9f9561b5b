"""Sources of the files that say who the agent and its user are, and of the workspace's rules."""

from __future__ import annotations

from pathlib import Path

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import Block, ContextWarning
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.source_context import SourceContext, SourceResult, file_block
from nexus.workspace.sources.instructions import with_includes, within_total
from nexus.workspace.sources.memory import log_place, memory_place

FILES = (
    Block("Workspace", "AGENTS.md", "", ""),
    Block("Persona", "SOUL.md", "", ""),
    Block("Persona", "USER.md", "", "", trust="user"),
    Block("Workspace", "TOOLS.md", "", ""),
    Block("Persona", "IDENTITY.md", "", ""),
)


def bootstrap(context: SourceContext) -> SourceResult:
    """Return one block for each existing file, under its name; unchanged templates are omitted. Raises OverCap."""
    blocks: list[Block] = []
    warnings: list[ContextWarning] = []
    for block in FILES:
        file, notes = file_block(context, block.name, block.name, block)
        blocks += file
        warnings += notes
    blocks, more = within_total(blocks, context.workspace.config.instructions, "bootstrap files")
    return blocks, [*warnings, *more]


_HEAD = """\
# Nexus

You are Nexus, an agent that works for its user in the workspace below. Where files of the workspace say who you are, \
they go before this."""


def nexus_identity(context: SourceContext) -> SourceResult:
    """Return the identity, machine facts, and paths of workspace, memory, log and skills; no block without a workspace."""
    if context.files is None:
        return [], []
    root = context.files.root
    memory = memory_place(context.files)
    places = {
        "Workspace": root,
        "Long-term memory": root / memory,
        "History log": root / log_place(memory),
        "Skills": root / SKILLS / "NAME" / FILE,
    }
    facts = {name: value for name, value in context.workspace.host.items() if value}
    text = "\n\n".join(filter(None, (_HEAD, _list("Runtime", facts), _list("Places", places))))
    return [Block("Workspace", "identity", text, "nexus:identity", trust="system")], []


def _list(title: str, values: dict[str, str] | dict[str, Path]) -> str:
    lines = [f"- {name}: {collapse_whitespace(str(value))}" for name, value in values.items()]
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


def soul(context: SourceContext) -> SourceResult:
    """Return SOUL.md: personality, values, boundaries."""
    return _persona_block(context, "SOUL.md", "Soul", "soul")


def identity(context: SourceContext) -> SourceResult:
    """Return the agent's IDENTITY.md: name, emoji, vibe. A persona without files is a warning."""
    blocks, warnings = _persona_block(context, "IDENTITY.md", "Identity", "identity")
    persona = context.request.settings.persona
    names = (f"personas/{persona}/{file}" for file in ("IDENTITY.md", "SOUL.md"))
    # A misspelled persona would silently be answered by the workspace's own.
    if persona and context.files is not None and not any(any(context.files.read(name)) for name in names):
        folder = f"personas/{collapse_whitespace(persona)}"
        text = f"SOUL.md and IDENTITY.md not found in {folder}; the workspace's files are used"
        warnings = [*warnings, ContextWarning("nexus:persona", text)]
    return blocks, warnings


def permissions(context: SourceContext) -> SourceResult:
    """Return the granted permissions, sorted, one per line; no block if none are named."""
    settings = context.request.settings
    if not settings.permissions:
        return [], []
    lines = [f"- {collapse_whitespace(name)}" for name in sorted(settings.permissions)]
    toolset = ""
    if settings.toolset:
        toolset = f"\n\nToolset: {collapse_whitespace(settings.toolset)}"
    text = "\n".join([f"# Permissions{toolset}", "", *lines])
    return [Block("Persona", "permissions", text, "nexus:permissions", trust="system")], []


def _persona_block(context: SourceContext, file: str, title: str, name: str) -> SourceResult:
    persona = context.request.settings.persona
    names = (*((f"personas/{persona}/{file}",) if persona else ()), file)
    return _first_block(context, names, title, Block("Persona", name, "", ""))


def _first_block(context: SourceContext, names: tuple[str, ...], title: str, block: Block) -> SourceResult:
    warnings: list[ContextWarning] = []
    for name in names:
        blocks, more = file_block(context, name, title, block)
        warnings += more
        if blocks:
            return blocks, warnings
    return [], warnings


def user_identity(context: SourceContext) -> SourceResult:
    """Return the user's identity and preferences."""
    block = Block("Persona", "user", "", "", trust="user")
    return _first_block(context, ("user/IDENTITY.md", "USER.md"), "The user", block)


def rules(context: SourceContext) -> SourceResult:
    """Return AGENTS.md with the files that it includes. Raises OverCap."""
    return with_includes(context, "AGENTS.md", "Workspace rules", Block("Workspace", "rules", "", ""))


def tools_guide(context: SourceContext) -> SourceResult:
    """Return TOOLS.md."""
    return file_block(context, "TOOLS.md", "Using tools", Block("Workspace", "tools guide", "", ""))
