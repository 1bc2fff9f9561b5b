"""`nexus policy`: what the policy files say, whether they can be used, and what a principal would get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from nexus.assembly.request_args import build_request
from nexus.cli.assemble_command import ROLES
from nexus.cli.shared import common, emit, handed_down, open_here, read_tools
from nexus.cli.table import print_table
from nexus.engine import Engine
from nexus.errors import BadPolicy
from nexus.policy import Grant, Policy, decide
from nexus.policy.decision import unmatched_patterns
from nexus.policy.link import link_principal
from nexus.policy.parse import merge_policies
from nexus.render.console import printable
from nexus.types.request import Event
from nexus.types.tool_definition import iter_definitions, tool_metadata

NOT_ALLOWED = 1
"""What `test --tool` ends with where the tool is not allowed."""


@click.group("policy")
@common
@click.pass_context
def command(ctx: click.Context, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show, check and try the policy: who may speak as what, in which session, with which tools.

    Example: nexus policy test --as telegram:42 --tool run_command
    """
    handed_down(ctx, command.commands, workspace, ledger, as_json=as_json)


@command.command("show")
@common
def show(workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Show the policies that hold. The user's comes before the workspace's.

    Example: nexus policy show
    """
    with open_here(workspace, ledger) as nx:
        found = nx.policies.read()
        places = [name for _, name in nx.policies.files]
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    if not found:
        click.echo(f"There is no policy: nobody is bound. Looked for {' and '.join(map(printable, places))}.")
    for policy in found:
        click.echo(printable(policy.name))
        print_table(("rule", "of", "says"), _rules(policy), wraps=("says",))


def _rules(policy: Policy) -> Iterator[tuple[str, str, str]]:
    for name, toolset in sorted(policy.toolsets.items()):
        yield "toolset", name, _told(toolset)
    for name, patterns in sorted(policy.categories.items()):
        yield "category", name, ", ".join(patterns)
    for name, principal in sorted(policy.principals.items()):
        yield "principal", name, f"{_told(principal)}; session {principal.label(name)}".removeprefix("; ")
    for name, rule in sorted(policy.roles.items()):
        yield "role", name, _told(rule)
    others = _told(policy.default) if policy.default else "no tools" if policy.principals else "bound by roles alone"
    yield "default", "all others" if policy.principals else "everybody", others


def _told(value: msgspec.Struct) -> str:
    """What is set in a rule, in one line."""
    said: dict[str, Any] = {
        name: given
        for name, given in msgspec.to_builtins(value).items()
        if given not in (None, "", ()) and name != "session"
    }
    shown = {name: given if isinstance(given, str) else ", ".join(given) for name, given in said.items()}
    return "; ".join(f"{name} {given}" for name, given in shown.items())


@command.command("check")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option(
    "--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions; unmatched patterns warn."
)
@common
def check(file: str | None, tools: str | None, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Check FILE, or the policies that hold. Patterns that none of the given tools match are warnings.

    Example: nexus policy check policy.toml --tools tools.json
    """
    with open_here(workspace, ledger) as nx:
        found = _checked(nx, file)
    warnings = list(_idle(found, tools)) if tools else []
    if as_json:
        emit({"policies": [policy.name for policy in found], "warnings": warnings})
        return
    for policy in found:
        counts = f"{len(policy.toolsets)} toolsets, {len(policy.principals)} principals, {len(policy.roles)} roles"
        click.echo(f"{printable(policy.name)}: fine ({counts})")
    if not found:
        click.echo("There is no policy.")
    for warning in warnings:
        click.echo(f"Warning: {printable(warning)}")


def _checked(nx: Engine, file: str | None) -> tuple[Policy, ...]:
    """The policies in force, or the one of a file, which may name the user's toolsets as a workspace's may."""
    if file is None:
        return nx.policies.read()
    path = Path(file).expanduser().absolute()
    own = nx.policies.given_by(path, file)
    try:
        before = tuple(one for one in nx.policies.read()[:1] if one.name.startswith("~"))
    except BadPolicy:
        before = ()
    return merge_policies((*before, own))[-1:]


def _idle(policies: tuple[Policy, ...], tools: str) -> Iterator[str]:
    known = [
        tool for definition in iter_definitions(read_tools(tools)) if (tool := tool_metadata(definition)) is not None
    ]
    for policy in policies:
        for name, toolset in policy.toolsets.items():
            for pattern in unmatched_patterns(toolset, known):
                yield f"{policy.name}: of toolset {name!r} nothing matches {pattern!r}"


@command.command("test")
@click.option("--as", "--principal", "principal", default="", help="Who speaks (telegram:42).")
@click.option("--role", type=click.Choice(ROLES), help="Role that is asked for [unified].")
@click.option("-s", "--session", help="Session that is asked for [their own].")
@click.option("--toolset", default="", help="Toolset that is asked for.")
@click.option("--tool", help="Only this tool; the exit code is 1 where it is not allowed.")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, to be judged each.")
@common
def test(
    principal: str,
    role: str | None,
    session: str | None,
    toolset: str,
    tool: str | None,
    tools: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> int:
    """Show what a principal would get, and why. That is role, session, toolset, permissions and tools.

    Example: nexus policy test --as telegram:42 --role worker --tools tools.json
    """
    given = read_tools(tools) if tools else []
    if tool is not None:
        given = [dict(one) for one in iter_definitions(given) if getattr(tool_metadata(one), "name", "") == tool] or [
            {"name": tool}
        ]
    asked: dict[str, Any] = {"role": role} if role else {}
    with open_here(workspace, ledger) as nx:
        if role == "worker" and session is None:
            session = "worker:test"
        request = build_request(Event(), session, principal=principal, toolset=toolset, tools=given, **asked)
        granted = decide(nx.policies.read(), request, lambda label: nx.ledger.resolve(label) or label)
    if as_json:
        emit(msgspec.to_builtins(granted))
    else:
        _print(granted, warns=tool is None)
    return NOT_ALLOWED if tool is not None and tool not in granted.tools else 0


def _print(granted: Grant, *, warns: bool) -> None:
    rows = [
        ("role", granted.role),
        ("person", granted.person or "(nobody that is known)"),
        ("session", granted.session),
        ("toolset", granted.toolset or "(all tools)"),
        ("permissions", ", ".join(granted.permissions) or "(none)"),
    ]
    for name, value in rows:
        click.echo(f"{name:<12} {printable(value)}")
    for why in granted.why:
        click.echo(f"  {printable(why)}")
    for warned in granted.warnings if warns else ():
        click.echo(f"Warning: {printable(warned.message)}")
    tools = [(name, "in", "") for name in granted.tools]
    tools += [(one.name, "out", one.why) for one in granted.denied_tools]
    if tools:
        print_table(("tool", "state", "why"), sorted(tools), wraps=("why",))


@command.command("promote")
@click.argument("principal")
@click.argument("person", required=False, default="")
@common
def promote(principal: str, person: str, workspace: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Lead the session of PRINCIPAL to that of PERSON. The old name stays as an alias; histories are not mixed.

    Example: nexus policy promote telegram:42 ann
    """
    with open_here(workspace, ledger, writes=True) as nx:
        done = link_principal(nx.ledger, nx.policies.read(), principal, person)
    if as_json:
        emit(msgspec.to_builtins(done))
        return
    old, new, kept = (printable(repr(label)) for label in (done.old, done.new, done.target))
    told = {
        "renamed": f"Session {old} is {new} now; the old name leads there.",
        "merged": f"{old} leads to {new} now; what was said under it stays in the archived session {kept}.",
        "aliased": f"{old} leads to {new} now.",
        "nothing": f"Nothing to do: {old} leads to {new}, or neither has said anything yet.",
    }
    click.echo(told[done.kind])
