"""Suggestions for mistyped words, and choices that make them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:  # the class of click 8.1 takes no arguments
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


def nearest(typed: str, names: Iterable[str]) -> str:
    """Return the name that is most like a mistyped one, else one that begins with it; empty if there is none."""
    by_fold = {name.lower(): name for name in names}
    close = get_close_matches(typed.lower(), by_fold, 1, cutoff=0.6)
    begins = [name for name in by_fold if typed and name.startswith(typed.lower())]
    if close or begins:
        return by_fold[(close or begins)[0]]
    return ""


class Choice(_Choice):
    """A choice whose error suggests the nearest value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value. Raises BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if guess := nearest(str(value), map(str, self.choices)):
                text = f"{error.message.rstrip('.')}. Did you mean {guess!r}?"
                raise click.BadParameter(text, ctx, param) from None
            raise
