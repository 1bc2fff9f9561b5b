"""A profile: which sources feed which slot, in which order. Form is data; the engine resolves the names."""

from __future__ import annotations

from msgspec import Struct

from nexus.layer import Layer


class Share(Struct, frozen=True):
    """What a layer may take of the available tokens at most (`ceiling`), and keeps in any case (`floor`).

    A ceiling shortens the largest blocks of Workspace, Persona or Memory; of Session, history is cut down to it. A floor
    is of Session: where system slot and event leave little, a cut keeps this share of what they leave.
    """

    layer: Layer
    floor: float = 0.0
    ceiling: float = 1.0


class Profile(Struct, frozen=True):
    """The form of a context. `system` and `current` name sources in order; `what` says in one line what it is for.

    `shares` bounds layers; a layer without one takes what it needs.
    """

    name: str
    what: str
    system: tuple[str, ...]
    current: tuple[str, ...]
    shares: tuple[Share, ...] = ()

    def share(self, layer: Layer) -> Share:
        """The bounds of a layer."""
        return next((share for share in self.shares if share.layer == layer), Share(layer))
