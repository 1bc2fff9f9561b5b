"""Profiles: which source fills which slot, and in which format the conversation is shown.

A profile is data. The engine resolves the names.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from nexus.types.block import Layer
from nexus.types.compaction_plan import FULL, FULL_TO

MessageFormatName: TypeAlias = str
"""How the conversation is shown: a name in `nexus.assembly.formats.registry.FORMATS`."""

SummaryMarker: TypeAlias = Literal["previous", "context"]
"""Heading of a summary: `[Previous conversation summary]` or `[CONTEXT SUMMARY]`."""

SUMMARY_MARKERS: tuple[SummaryMarker, ...] = get_args(SummaryMarker)

STORED_NOTES = "notes"
"""Source that replays the blocks of a recorded message."""


class Share(Struct, frozen=True):
    """Lower and upper bound of a layer's part of the available tokens."""

    layer: Layer
    floor: float = 0.0
    """Session only: share of the tokens that system prompt and event leave which a cut keeps."""
    ceiling: float = 1.0
    """Largest blocks of Workspace, Persona or Memory are truncated above it; the Session's history is cut."""


class Profile(Struct, frozen=True):
    """Assignment of sources to slots, in order, and the format of the conversation."""

    name: str
    description: str
    system: tuple[str, ...]
    current: tuple[str, ...]
    shares: tuple[Share, ...] = ()
    """Bounds of layers. A layer without a share takes what it needs."""
    preamble: tuple[str, ...] = ()
    """Sources whose blocks are messages between the system prompt and the conversation."""
    message_format: MessageFormatName = "roles"
    summary: SummaryMarker = "previous"
    session_header: bool = False
    """If True, the first message of a new session contains its start time."""
    freeze_system_prompt: bool = False
    """If True, the system prompt is unchanged until a compaction or clear, even if its files change."""
    compact_at: float = FULL
    """`nexus.call` compacts a context that takes more than this share of the available tokens."""
    compact_to: float = FULL_TO
    """Target share of that compaction."""

    def share(self, layer: Layer) -> Share:
        """Return the bounds of a layer."""
        return next((share for share in self.shares if share.layer == layer), Share(layer))
