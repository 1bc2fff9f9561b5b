"""What a user may set about sources: the typed form of the configuration, with its defaults.

The files are read and merged in `nexus.workspace.config.load`; a program may pass its own to `nexus.open(config=)`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class InstructionsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Instruction files (document 004): which names count, in order, and how much of them is shown.

    `file_chars` and `total_chars` are caps in characters; what they keep out is reported, and refused where `caps` is
    `error`. `include_depth` is how deep `@file` lines may lead; 0 leaves them as text.
    """

    names: tuple[str, ...] = ("NEXUS.md", "AGENTS.md", "CLAUDE.md")
    file_chars: Annotated[int, Meta(ge=1_000)] = 20_000
    total_chars: Annotated[int, Meta(ge=1_000)] = 60_000
    caps: Literal["report", "error"] = "report"
    include_depth: Annotated[int, Meta(ge=0, le=20)] = 5


class ImagesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Images: limits read from the header before anything is decoded, and for how many turns they are sent.

    `longest_edge` is in pixels, 0 is the model's own; images older than `keep_turns` turns become notes, 0 keeps all.
    """

    max_bytes: int = 20_000_000
    max_pixels: int = 40_000_000
    longest_edge: int = 0
    keep_turns: int = 0


class HooksConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Hooks of other packages: how long each may take, in milliseconds, and which are switched off, by name."""

    timeout_ms: int = 1_000
    disabled: tuple[str, ...] = ()


class FilesConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Files of the workspace. `hard_links` reads those that have further names in other folders (docs/security.md)."""

    hard_links: bool = False


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration. `persona` names the folder `personas/NAME` that answers where a call names none."""

    instructions: InstructionsConfig = InstructionsConfig()
    images: ImagesConfig = ImagesConfig()
    hooks: HooksConfig = HooksConfig()
    files: FilesConfig = FilesConfig()
    persona: str = ""
    timezone: str = ""
    model: str = ""
