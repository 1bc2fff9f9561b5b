"""A profile: which sources feed which slot, in which order. Form is data; the engine resolves the names."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from nexus.types.block import Layer

MessageFormatName: TypeAlias = Literal["roles", "tagged", "tagged_stable", "turnlog"]
"""How the conversation is shown: in real roles; the turn alone, with the user's words in [THIS_MOMENT] (document 000);
or each message as an entry of document 001's turn log. `tagged_stable` leaves out earlier entries in blocks, by a cut."""

ONE_TURN: frozenset[MessageFormatName] = frozenset({"tagged", "tagged_stable"})
"""Forms that show the turn alone; their blocks tell of what was said before."""

MESSAGE_FORMATS: tuple[MessageFormatName, ...] = get_args(MessageFormatName)

SummaryMarker: TypeAlias = Literal["previous", "context"]
"""What a summary stands under: `[Previous conversation summary]` (document 002), or `[CONTEXT SUMMARY]` (document 004)."""

SUMMARY_MARKERS: tuple[SummaryMarker, ...] = get_args(SummaryMarker)


STORED_NOTES = "notes"
"""The source by which a recorded call is made again: the blocks that stood in its message."""


class Share(Struct, frozen=True):
    """What a layer may take of the available tokens at most (`ceiling`), and keeps in any case (`floor`).

    A ceiling shortens the largest blocks of Workspace, Persona or Memory; of Session, history is cut down to it. A floor
    is of Session: where system slot and event leave little, a cut keeps this share of what they leave.
    """

    layer: Layer
    floor: float = 0.0
    ceiling: float = 1.0


class Profile(Struct, frozen=True):
    """The form of a context: sources in order, by slot, and how the conversation is shown; `what` says what it is for.

    The blocks of `ahead` are messages between the system slot and the conversation. `shares` bounds layers; a layer
    without one takes what it needs. `summary` is the marker that a summary stands under. `says_start`: the first message
    of a new session says when it was started. `frozen`: the system slot stays as a session began with it until a
    compaction or clear, whatever becomes of the files.
    """

    name: str
    description: str
    system: tuple[str, ...]
    current: tuple[str, ...]
    shares: tuple[Share, ...] = ()
    preamble: tuple[str, ...] = ()
    message_format: MessageFormatName = "roles"
    summary: SummaryMarker = "previous"
    session_header: bool = False
    freeze_system_prompt: bool = False

    def share(self, layer: Layer) -> Share:
        """The bounds of a layer."""
        return next((share for share in self.shares if share.layer == layer), Share(layer))
