"""User configuration: settings of calls, and of the sources of their contexts.

`nexus.workspace.config` reads and merges the files; a program may pass its own value to `nexus.open(config=)`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nexus.types.settings import Settings, SettingsChanges


class InstructionsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Instruction files (document 004): their names in order, and caps on their size."""

    names: tuple[str, ...] = ("NEXUS.md", "AGENTS.md", "CLAUDE.md")
    file_chars: Annotated[int, Meta(ge=1_000)] = 20_000
    total_chars: Annotated[int, Meta(ge=1_000)] = 60_000
    caps: Literal["report", "error"] = "report"
    """Whether text over a cap is truncated with a warning, or an error."""
    include_depth: Annotated[int, Meta(ge=0, le=20)] = 5
    """Nesting limit of `@file` lines; 0 leaves them as text."""


class ImagesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Images: limits that are checked in the header before anything is decoded."""

    max_bytes: int = 20_000_000
    max_pixels: int = 40_000_000
    longest_edge: int = 0
    """In pixels; 0 is the model's own limit."""
    keep_turns: int = 0
    """Images older than this number of turns become notes; 0 keeps all."""


class HooksConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Hooks of other packages: timeout of each call, and the names of disabled ones."""

    timeout_ms: int = 1_000
    disabled: tuple[str, ...] = ()


class FilesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Files of the workspace. `hard_links` allows files with further names in other folders (docs/security.md)."""

    hard_links: bool = False


class Config(Settings, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=True):
    """The whole configuration: the settings that every engine begins with, and the options of its sources."""

    instructions: InstructionsConfig = InstructionsConfig()
    images: ImagesConfig = ImagesConfig()
    hooks: HooksConfig = HooksConfig()
    files: FilesConfig = FilesConfig()
    persona: str = ""
    """Folder `personas/NAME` for calls that name no persona."""
    timezone: str = ""
    consolidate: Literal["off", "propose", "add"] = "off"
    """Whether facts are proposed for memory, or added to it, when a session is compacted or a chat ends."""
    trusted: tuple[str, ...] = ()
    """Folders whose workspaces may choose the model: who gets the data, and at which price."""
    summarizer: str = ""
    """Model that writes summaries, or `extractive`."""

    def engine_settings(self) -> SettingsChanges:
        """Return the settings that an engine begins with; the persona stays a default of sessions without one."""
        changes = self.changes_from(Settings())
        changes.pop("persona", None)
        return changes


OF_A_CALL = frozenset({
    "principal", "role", "task", "manager", "manager_call", "user_profile", "permissions", "blocks", "model_config",
    "run_mode",
})  # fmt: skip
"""Settings that a program or its caller decides, in no file: above all who speaks, and with which rights."""
