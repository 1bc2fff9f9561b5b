"""What is known of a plugin: where it comes from, what it offers, what was wrong with it."""

from __future__ import annotations

from msgspec import Struct


class Plugin(Struct, frozen=True):
    """A plugin that was found. `place` is the distribution that it comes with, or `given` by the program.

    `hooks` are the hooks that it has; `sources` and `profiles` are the names that it adds. `troubles` say what of it is
    left out and why. A disabled one was not even imported.
    """

    name: str
    place: str
    hooks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    disabled: bool = False
