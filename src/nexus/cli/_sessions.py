"""The session of a command: as its argument or with -s, by label, alias, a unique beginning of a label, or `last`."""

from __future__ import annotations

import re

import click

from nexus.engine import Engine
from nexus.errors import NoSuchSession
from nexus.ledger.store import unknown_session

NO_LEDGER = ":memory:"
"""Place of the empty ledger that commands read without a ledger file."""

LAST = "last"
"""Name that means the session with the newest last entry, unless a session or an alias has it."""

SHOWN_CANDIDATES = 5
"""Sessions that the message on an ambiguous name lists."""

_ID_PREFIX = re.compile(r"[0-9a-f]{4}[0-9a-f-]*")
"""Beginning of a session's id in other tools, with four digits at least."""

SESSION_OPTION = "session_option"
"""Name of the value of -s in a command that takes the session as its argument too."""

_IS_NAMED = "nexus.cli.session_named"
"""Key of click's context: True if the line has -s, so that its arguments begin after the session."""

_OPTIONS_ONLY = "nexus.cli.options_only"
"""Key of click's context: True while only the options of a line are read."""


class SessionArgument(click.Argument):
    """The session that a command works on. A line with -s lacks it."""


class SessionCommand(click.Command):
    """A command whose session may be an argument or the value of -s."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the line; with -s, its arguments are those after the session."""
        argument = next((param for param in self.params if isinstance(param, SessionArgument)), None)
        if argument is None:
            return super().parse_args(ctx, args)
        ctx.meta[_IS_NAMED], ctx.meta[_OPTIONS_ONLY] = False, True
        try:
            options, _, _ = self.make_parser(ctx).parse_args(list(args))
        finally:
            ctx.meta[_OPTIONS_ONLY] = False
        ctx.meta[_IS_NAMED] = isinstance(options.get(SESSION_OPTION), str)
        rest = super().parse_args(ctx, args)
        session_name = ctx.params.pop(SESSION_OPTION, None)
        if ctx.meta[_IS_NAMED]:
            ctx.params[argument.name] = session_name
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the line, without the session's argument if the line has -s."""
        unwanted: tuple[type[click.Parameter], ...] = ()
        if ctx.meta.get(_OPTIONS_ONLY):
            unwanted = (click.Argument,)
        elif ctx.meta.get(_IS_NAMED):
            unwanted = (SessionArgument,)
        return [param for param in super().get_params(ctx) if not isinstance(param, unwanted)]


def resolve_session(nx: Engine, name: str) -> str:
    """Return the label of the session with this name or alias, of the newest for `last`, or that alone begins so.

    Raises NoSuchSession.
    """
    if label := nx.ledger.resolve(name) or _newest(nx, name) or _by_prefix(nx, name):
        return label
    if nx.ledger.location == NO_LEDGER:
        raise NoSuchSession(
            f"session {name!r} not found: no ledger yet (create one: nexus import FILE or nexus record)"
        )
    raise unknown_session(nx.ledger.store, name)


def resolve_id(nx: Engine, name: str) -> str:
    """Return the session with this name, the newest for `last`, or whose id begins so; another name may be new.

    Raises NoSuchSession for `last` without a session.
    """
    if nx.ledger.resolve(name):
        return name
    if name == LAST and not _newest(nx, name):
        raise NoSuchSession(f"no session yet: {LAST!r} means the newest one (begin one with another name)")
    return _newest(nx, name) or (_by_prefix(nx, name) if _ID_PREFIX.fullmatch(name) else "") or name


def similar_session(nx: Engine, name: str) -> str:
    """Return the only session whose name begins with the name of a new one; empty if there is none."""
    try:
        return _by_prefix(nx, name)
    except NoSuchSession:
        return ""


def _newest(nx: Engine, name: str) -> str:
    """Return the session with the newest last entry if the name is `last`; empty for another name."""
    if name == LAST:
        return next((session.label for session in nx.ledger.sessions.list(limit=1)), "")
    return ""


def _by_prefix(nx: Engine, prefix: str) -> str:
    """Return the only session whose name begins so; empty for none. Raises NoSuchSession for several.

    Deleted sessions count only if no other session begins so. The branches and sub-agents of a session, `NAME~1` and
    `NAME+ID`, do not make its name ambiguous.
    """
    if not prefix:
        return ""
    sessions = nx.ledger.store.sessions(every=True, prefix=prefix)
    present = [session for session in sessions if session.status != "deleted"]
    labels = [session.label for session in present or sessions]
    roots = [label for label in labels if not any(label.startswith((f"{root}~", f"{root}+")) for root in labels)]
    if len(roots) > 1:
        shown_labels = ", ".join(repr(label) for label in sorted(roots)[:SHOWN_CANDIDATES])
        more = ""
        if len(roots) > SHOWN_CANDIDATES:
            more = f" and {len(roots) - SHOWN_CANDIDATES:,} more"
        raise NoSuchSession(f"session {prefix!r} is ambiguous: {shown_labels}{more} (give more of the name)")
    if roots:
        return roots[0]
    return ""
