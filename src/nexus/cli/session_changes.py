"""The commands of `nexus session` that change one: facts, names, archive, delete. Each change is appended, none is lost."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from nexus.cli.listing import label_of, new_name, quoted
from nexus.cli.shared import common, emit, open_here
from nexus.engine import Engine
from nexus.errors import BadReference, ForksDepend
from nexus.ledger.sessions import EraseResult, RefUpdate, SessionMetadata, SessionStatus

SETTABLE = tuple(name for name in SessionMetadata.__struct_fields__ if name != "status")


@click.command("archive")
@click.argument("name")
@common
def archive(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Take session NAME out of the list. All of it stays, and it can go on.

    Example: nexus session archive plan-b
    """
    _change_status(name, "archived", workspace, ledger, as_json=as_json)


@click.command("restore")
@click.argument("name")
@common
def restore(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Bring session NAME back into the list. It is active again, after archive or delete.

    Example: nexus session restore plan-b
    """
    _change_status(name, "active", workspace, ledger, as_json=as_json)


@click.command("delete")
@click.argument("name")
@click.option("--for-good", is_flag=True, help="Erase its text from the storage. This cannot be undone.")
@click.option("--with-forks", is_flag=True, help="With --for-good: erase the sessions that continue it too.")
@click.option("--yes", is_flag=True, help="With --for-good: do not ask.")
@common
def delete(
    name: str,
    workspace: str | None,
    ledger: str | None,
    *,
    for_good: bool,
    with_forks: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Mark session NAME as deleted, or erase it. A marked one is not listed, and `restore` brings it back.

    With --for-good the text is erased from the storage, and the storage is searched for it afterwards.

    Example: nexus session delete plan-b --for-good
    """
    if not for_good:
        if with_forks or yes:
            raise click.UsageError("--with-forks and --yes belong to --for-good")
        _change_status(name, "deleted", workspace, ledger, as_json=as_json)
        return
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        if label != name:
            raise BadReference(
                f"{quoted(name)} is an alias of {quoted(label)}: what is deleted for good is named by its own label"
            )
        if not yes:
            _ask(nx, [label, *(_continuing(nx, label) if with_forks else ())])
        before = [one.label for one in nx.sessions(include_inactive=True)]
        try:
            proof = nx.ledger.erase(label, with_forks=with_forks)
        except ForksDepend as error:
            raise ForksDepend(f"{error}; --with-forks erases them too") from error
        left = {one.label for one in nx.sessions(include_inactive=True)}
        labels = [label, *(one for one in before if one not in left and one != label)]
    if as_json:
        emit({"sessions": labels, **msgspec.to_builtins(proof)})
    else:
        click.echo(_proof(labels, proof))


@click.command("rename")
@click.argument("old")
@click.argument("new", callback=new_name)
@common
def rename(old: str, new: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Give session OLD the name NEW. The old name stays as an alias.

    Example: nexus session rename guest-17 maria
    """
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, old)
        move = nx.ledger.rename(label, new)
    _say(move, f"Session {quoted(label)} is {quoted(new)} now; the old name stays as an alias.", as_json=as_json)


@click.command("merge")
@click.argument("name")
@click.argument("into")
@common
def merge(name: str, into: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Lead the name of session NAME to session INTO. The two histories are not mixed.

    What was said under NAME stays as the archived session NAME~merged.

    Example: nexus session merge guest-17 maria
    """
    with open_here(workspace, ledger) as nx:
        label, target = label_of(nx, name), label_of(nx, into)
        move = nx.ledger.merge(label, target)
    told = (
        f"{quoted(label)} leads to {quoted(target)} now. Its own history is the archived session {quoted(move.label)}."
    )
    _say(move, told, as_json=as_json)


@click.command("alias")
@click.argument("name", callback=new_name)
@click.argument("session")
@common
def alias(name: str, session: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Make NAME another name for SESSION. An alias that is there already is led to SESSION from now on.

    Example: nexus session alias latest main
    """
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, session)
        nx.ledger.alias(name, label)
    if as_json:
        emit({"name": name, "target": label})
    else:
        click.echo(f"{quoted(name)} leads to session {quoted(label)} now.")


@click.command("unalias")
@click.argument("name")
@common
def unalias(name: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Take the alias NAME back. The session that it led to stays as it is.

    Example: nexus session unalias latest
    """
    with open_here(workspace, ledger) as nx:
        nx.ledger.unalias(name)
    if as_json:
        emit({"name": name, "target": None})
    else:
        click.echo(f"{quoted(name)} is no alias any more.")


@click.command("set", epilog=f"Facts: {', '.join(SETTABLE)}.")
@click.argument("name")
@click.argument("facts", nargs=-1, required=True, metavar="FACTS…")
@common
def set_facts(name: str, facts: tuple[str, ...], workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Change what is known of session NAME. FACTS are NAME=VALUE pairs; an empty value takes a fact away.

    Example: nexus session set scout persona=Scout task="find the slow query" parent_session=main
    """
    given = _given(facts)
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        move = nx.ledger.update(label, f"set {', '.join(given)}", **given)
    _say(move, f"Session {quoted(label)}: set {', '.join(given)}.", as_json=as_json)


CHANGES = (set_facts, rename, merge, alias, unalias, archive, restore, delete)
"""The commands, in the order in which the group lists them."""


def _given(facts: tuple[str, ...]) -> dict[str, Any]:
    """The facts of `name=value` pairs. Raises UsageError for what is none."""
    found: dict[str, Any] = {}
    for fact in facts:
        name, equals, value = fact.partition("=")
        if not equals:
            raise click.UsageError(f"{fact!r} is no fact: write NAME=VALUE, for example persona=Scout")
        if name == "status":
            raise click.UsageError("the status is changed by `nexus session archive`, `restore` and `delete`")
        if name not in SETTABLE:
            raise click.UsageError(f"{name!r} is no fact of a session; facts are {', '.join(SETTABLE)}")
        if name == "parent_turn" and not (value or "0").isdecimal():
            raise click.UsageError(f"parent_turn is the number of a turn, not {value!r}")
        found[name] = int((value or "0")[:15]) if name == "parent_turn" else value
    return found


def _change_status(
    name: str, status: SessionStatus, workspace: str | None, ledger: str | None, *, as_json: bool
) -> None:
    with open_here(workspace, ledger) as nx:
        label = label_of(nx, name)
        move = nx.store.session(label)
        known = move is not None and move.facts.status == status
        if not known:
            change = {"archived": nx.ledger.archive, "deleted": nx.ledger.delete, "active": nx.ledger.restore}[status]
            move = change(label)
    assert move is not None
    told = f"Session {quoted(label)} {'was' if known else 'is'} {status}{' already' if known else ' now'}."
    if status != "active":
        told += " All of it stays; `nexus session restore` brings it back into the list."
    _say(move, told, as_json=as_json)


def _ask(nx: Engine, labels: list[str]) -> None:
    """Asks on a terminal whether sessions may be erased. Raises UsageError where nobody can be asked, Abort for no."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("--for-good cannot be undone: without a terminal to ask on, it needs --yes")
    found = {one.label: one for one in nx.sessions(include_inactive=True)}
    for label in labels:
        click.echo(f"{quoted(label)}: {found[label].turns:,} turns, {found[label].messages:,} messages", err=True)
    click.confirm("Erase all of this for good? It cannot be undone", abort=True, err=True)


def _continuing(nx: Engine, label: str) -> list[str]:
    """The other sessions that `erase` takes along with forks: those that continue a thread that this one ever had."""
    had = {
        one.label: {move.thread for move in nx.store.moves(one.label) if move.thread is not None}
        for one in nx.sessions(include_inactive=True)
    }
    taken, more = {label}, {label}
    while more:
        threads = {thread for one in taken for thread in had[one]}
        more = {
            one
            for one, own in had.items()
            if one not in taken and any(part.thread in threads for thread in own for part in nx.store.path(thread))
        }
        taken |= more
    return sorted(taken - {label})


def _proof(labels: list[str], proof: EraseResult) -> str:
    threads = ", ".join(map(str, proof.threads)) or "none"
    images = f", {proof.blobs:,} images" if proof.blobs else ""
    searched = (
        f"The storage was searched for {proof.needles:,} pieces of their text afterwards: {proof.found:,} were found."
    )
    return (
        f"Erased for good: {', '.join(map(quoted, labels))}.\n"
        f"Gone: {proof.entries:,} entries, {proof.messages:,} messages{images} (threads {threads}).\n"
        f"{searched if proof.needles else 'There was no text that only they had.'}"
    )


def _say(move: RefUpdate, told: str, *, as_json: bool) -> None:
    if as_json:
        emit(msgspec.to_builtins(move))
    else:
        click.echo(told)
