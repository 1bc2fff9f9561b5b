"""Types of parameters: choices that suggest the nearest value, and session names that a shell can complete."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stderr
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # the classes of click 8.1 take no arguments
    _Choice, _ParamType = click.Choice[str], click.ParamType[str]
else:
    _Choice, _ParamType = click.Choice, click.ParamType


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the word that is most like a mistyped one, else one that begins with it; empty if there is none."""
    by_fold = {candidate.lower(): candidate for candidate in words}
    close = get_close_matches(word.lower(), by_fold, 1, cutoff=0.6)
    begins = [candidate for candidate in by_fold if word and candidate.startswith(word.lower())]
    return by_fold[(close or begins)[0]] if close or begins else ""


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


class _SessionName(_ParamType):
    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """Return the sessions of the ledger that the line names, newest first; none if it cannot be read."""
        from nexus.cli._options import CommandOptions
        from nexus.errors import NexusError

        places: dict[str, Any] = {}
        line: click.Context | None = ctx
        while line is not None:
            places |= {name: line.params[name] for name in ("workspace", "ledger") if line.params.get(name)}
            line = line.parent
        try:
            with redirect_stderr(io.StringIO()), CommandOptions(**places).open(needs_config=False) as nx:
                sessions = nx.sessions()
        except (NexusError, OSError):
            return []
        return [
            CompletionItem(session.label, help=session.title)
            for session in sessions
            if session.label.startswith(incomplete) and session.label.isprintable()
        ]


SESSION = _SessionName()
"""The name of a session."""
