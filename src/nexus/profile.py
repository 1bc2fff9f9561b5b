"""A profile: which sources feed which slot, in which order. Form is data; the engine resolves the names."""

from __future__ import annotations

from msgspec import Struct


class Profile(Struct, frozen=True):
    """The form of a context. `system` and `current` name sources in order; `what` says in one line what it is for."""

    name: str
    what: str
    system: tuple[str, ...]
    current: tuple[str, ...]
