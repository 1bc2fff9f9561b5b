"""The turn log's profile, and the source that describes its entries to the model."""

from __future__ import annotations

from nexus.assembly.profiles.builtin import LAYERED
from nexus.types.block import Block
from nexus.types.profile import Profile
from nexus.workspace.prompts import prompt_text
from nexus.workspace.source_context import SourceContext, SourceResult
from nexus.workspace.sources.registry import SourceSpec

TURNLOG = Profile(
    "turnlog",
    "as layered, with each message as JSON entries next to the real calls and results (turn log)",
    system=("turn_log", *LAYERED.system),
    current=LAYERED.current,
    message_format="turnlog",
)


def turn_log(_context: SourceContext) -> SourceResult:
    """Return the description of the turn log's entries and of the expected answer, the same for every call."""
    text = prompt_text("turn_log.md", "nexus.turnlog")
    return [Block("Workspace", "turn log", text, "nexus:turn_log", trust="system")], []


TURN_LOG_SOURCE = SourceSpec("turn_log", turn_log, "never")
