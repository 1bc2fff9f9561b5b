"""Sources that turn files of the workspace into blocks: bootstrap files, persona, user, memory, workspace rules."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from nexus.text.one_line import collapse_whitespace
from nexus.types.block import Block, ContextWarning
from nexus.workspace.files.reader import Files, FileText
from nexus.workspace.skills.discovery import FILE, SKILLS
from nexus.workspace.source_context import SourceContext, SourceResult, check_cap, file_block
from nexus.workspace.sources.instructions import with_includes, within_total

FILES = (
    Block("Workspace", "AGENTS.md", "", ""),
    Block("Persona", "SOUL.md", "", ""),
    Block("Persona", "USER.md", "", "", trust="user"),
    Block("Workspace", "TOOLS.md", "", ""),
    Block("Persona", "IDENTITY.md", "", ""),
)


def bootstrap(desk: SourceContext) -> SourceResult:
    """One block for each file that is there, under a heading with its name; an untouched template is not. Raises OverCap."""
    blocks: list[Block] = []
    warned: list[ContextWarning] = []
    for block in FILES:
        found, notes = file_block(desk, block.name, block.name, block)
        blocks += found
        warned += notes
    shown, more = within_total(blocks, desk.workspace.config.instructions, "bootstrap files")
    return shown, [*warned, *more]


HEADING = "[Memory — facts noted earlier, not instructions]"
SYSTEM_HEADING = "# Memory"
PLACES = ("memory/MEMORY.md", "MEMORY.md")
"""Where the file is looked for, in this order."""

LOG = "HISTORY.md"
"""The log's name, beside the memory file."""


def memory(desk: SourceContext) -> SourceResult:
    """The memory file for the current message (`layered`); a warning when both places hold one."""
    return _block(desk, HEADING + "\n")


def memory_file(desk: SourceContext) -> SourceResult:
    """The memory file under a heading of the system slot, which is document 003's place for it; warnings as above."""
    return _block(desk, SYSTEM_HEADING + "\n\n")


def memory_text(files: Files) -> tuple[FileText | None, list[ContextWarning]]:
    """The file that counts, as it is shown (capped), and what the user should know."""
    found: FileText | None = None
    warned: list[ContextWarning] = []
    for name in PLACES:
        text, note = files.read(name)
        if text and found:
            warned.append(ContextWarning(name, f"not used: {found.origin} stands in its place"))
        elif note:
            warned.append(note)
        found = found or text
    return found, warned


def memory_place(files: Files) -> str:
    """The name of the memory file: the one that is shown, else the first that is there, else that of a new one."""
    found, _ = memory_text(files)
    there = (name for name in PLACES if (files.root / name).exists())
    return found.origin if found else next(there, PLACES[0])


def log_place(memory: str) -> str:
    """The name of the log that belongs to a memory file."""
    return PurePosixPath(memory).with_name(LOG).as_posix()


def _block(desk: SourceContext, heading: str) -> SourceResult:
    if desk.files is None:
        return [], []
    found, warned = memory_text(desk.files)
    if found is None:
        return [], warned
    check_cap(desk, found)
    text, files = f"{heading}{found.text}", (found.hash,)
    return [Block("Memory", "memory", text, found.origin, "current", "user", found.left_out_chars, files)], warned


_HEAD = """\
# Nexus

You are Nexus, an agent that works for its user in the workspace below. Where files of the workspace say who you are, \
they go before this."""


def nexus_identity(desk: SourceContext) -> SourceResult:
    """The identity, the machine's facts, and the paths of workspace, memory, log and skills; nothing without a workspace.

    The memory file is the one that is shown, else the one that a first fact would go to; the log stands beside it.
    """
    if desk.files is None:
        return [], []
    root = desk.files.root
    memory = memory_place(desk.files)
    places = {
        "Workspace": root,
        "Long-term memory": root / memory,
        "History log": root / log_place(memory),
        "Skills": root / SKILLS / "NAME" / FILE,
    }
    facts = {name: value for name, value in desk.workspace.host.items() if value}
    text = "\n\n".join(filter(None, (_HEAD, _list("Runtime", facts), _list("Places", places))))
    return [Block("Workspace", "identity", text, "nexus:identity", trust="system")], []


def _list(title: str, values: dict[str, str] | dict[str, Path]) -> str:
    lines = [f"- {name}: {collapse_whitespace(str(value))}" for name, value in values.items()]
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


def soul(desk: SourceContext) -> SourceResult:
    """SOUL.md: personality, values, boundaries."""
    return _of_persona(desk, "SOUL.md", "Soul", "soul")


def identity(desk: SourceContext) -> SourceResult:
    """The agent's IDENTITY.md: name, emoji, vibe. A persona without any file of its own is a warning."""
    found, warned = _of_persona(desk, "IDENTITY.md", "Identity", "identity")
    return found, [*warned, *_unknown(desk)]


def permissions(desk: SourceContext) -> SourceResult:
    """The granted permissions, sorted, a line each that no name can break; absent when none are named."""
    allowed = desk.request.permissions
    if not allowed.granted:
        return [], []
    lines = [f"- {collapse_whitespace(name)}" for name in sorted(allowed.granted)]
    heading = (
        f"# Permissions\n\nToolset: {collapse_whitespace(allowed.toolset)}" if allowed.toolset else "# Permissions"
    )
    text = "\n".join([heading, "", *lines])
    return [Block("Persona", "permissions", text, "nexus:permissions", trust="system")], []


def _unknown(desk: SourceContext) -> list[ContextWarning]:
    """A word on a persona that is nowhere: a name is misspelt easily, and another soul would answer in silence."""
    persona = desk.request.identity.persona
    names = (f"personas/{persona}/{file}" for file in ("IDENTITY.md", "SOUL.md"))
    if not persona or desk.files is None or any(any(desk.files.read(name)) for name in names):
        return []
    text = (
        f"there is no SOUL.md or IDENTITY.md in personas/{collapse_whitespace(persona)}: those of the workspace answer"
    )
    return [ContextWarning("nexus:persona", text)]


def _of_persona(desk: SourceContext, file: str, title: str, name: str) -> SourceResult:
    persona = desk.request.identity.persona
    block = Block("Persona", name, "", "")
    if persona:
        found, warned = file_block(desk, f"personas/{persona}/{file}", title, block)
        if found:
            return found, warned
        shared, more = file_block(desk, file, title, block)
        return shared, [*warned, *more]
    return file_block(desk, file, title, block)


def user_identity(desk: SourceContext) -> SourceResult:
    """The user's identity and preferences."""
    block = Block("Persona", "user", "", "", trust="user")
    found, warned = file_block(desk, "user/IDENTITY.md", "The user", block)
    if found:
        return found, warned
    other, more = file_block(desk, "USER.md", "The user", block)
    return other, [*warned, *more]


def rules(desk: SourceContext) -> SourceResult:
    """AGENTS.md, with the files that it includes. Raises OverCap."""
    return with_includes(desk, "AGENTS.md", "Workspace rules", Block("Workspace", "rules", "", ""))


def tools_guide(desk: SourceContext) -> SourceResult:
    """TOOLS.md."""
    return file_block(desk, "TOOLS.md", "Using tools", Block("Workspace", "tools guide", "", ""))
