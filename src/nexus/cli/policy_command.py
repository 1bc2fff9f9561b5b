"""`nexus config policy`: the rules of the policy files, their validity, and a principal's grant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click
import msgspec

from nexus.cli._listing import Column, Listing, wrapped
from nexus.cli._options import SESSION, CommandOptions, NexusGroup
from nexus.cli._output import emit, quoted
from nexus.cli._parameters import Choice
from nexus.cli.assemble_command import ROLES
from nexus.errors import BadConfig
from nexus.policy import Policy, decide
from nexus.policy.authorization import owning_names
from nexus.policy.decision import unmatched_patterns
from nexus.policy.link import link_principal
from nexus.policy.parse import merge_policies
from nexus.render.console import printable
from nexus.types.request import Event
from nexus.types.settings import CallArguments
from nexus.types.tool_definition import iter_definitions, tool_metadata


class _Rule(NamedTuple):
    """A rule of a policy, as text."""

    rule: str
    name: str
    content: str


class _Decision(NamedTuple):
    """What a grant says about a tool."""

    tool: str
    state: str
    reason: str


RULES = Listing(Column("rule"), Column("name"), wrapped("content"))
DECISIONS = Listing(Column("tool"), Column("state"), wrapped("reason"))

NOT_ALLOWED = 1
"""Exit code of `test --tool` for a tool that is denied."""


@click.group("policy", cls=NexusGroup)
def command() -> None:
    """Show, check and test the policy.

    A policy says who may speak as what, in which session, with which tools.

    Example: nexus config policy test --as telegram:42 --tool run_command
    """


@command.subcommand("show")
def show(options: CommandOptions) -> None:
    """Show the policies in force, the user's first.

    Example: nexus config policy show
    """
    with options.open() as nx:
        policies = nx.policies.read()
        files = [name for _, name in nx.policies.files]
    if options.as_json:
        emit(policies)
        return
    if not policies:
        click.echo(f"No policy: no restrictions apply. Files: {' and '.join(map(printable, files))}.")
    for policy in policies:
        click.echo(printable(policy.name))
        RULES.print_rows(list(_rules(policy)))


def _rules(policy: Policy) -> Iterator[_Rule]:
    for name, toolset in sorted(policy.toolsets.items()):
        yield _Rule("toolset", name, _describe_rule(toolset))
    for name, patterns in sorted(policy.categories.items()):
        yield _Rule("category", name, ", ".join(patterns))
    for name, principal in sorted(policy.principals.items()):
        content = f"{_describe_rule(principal)}; session {principal.label(name)}"
        yield _Rule("principal", name, content.removeprefix("; "))
    for name, rule in sorted(policy.roles.items()):
        yield _Rule("role", name, _describe_rule(rule))
    if policy.default:
        others = _describe_rule(policy.default)
    elif policy.principals:
        others = "no tools"
    else:
        others = "limited by roles only"
    yield _Rule("default", "all others" if policy.principals else "everybody", others)


def _describe_rule(rule: msgspec.Struct) -> str:
    """Return the fields that a rule sets, on one line; the session is shown separately."""
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    return "; ".join(
        f"{name} {value if isinstance(value, str) else ', '.join(value)}"
        for name, value in fields.items()
        if value not in (None, "", ()) and name != "session"
    )


@command.subcommand("check")
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, to test the patterns.")
def check(file: str | None, options: CommandOptions) -> None:
    """Check FILE, or the policies in force. With --tools, patterns without a matching tool are warnings.

    Example: nexus config policy check policy.toml --tools tools.json
    """
    with options.open() as nx:
        if file is None:
            policies = nx.policies.read()
        else:
            policy = nx.policies.load_file(Path(file).expanduser().absolute(), file)
            try:  # the file may refer to the user's toolsets, as a workspace's policy may
                user_policies = tuple(other for other in nx.policies.read()[:1] if other.name.startswith("~"))
            except BadConfig:  # the file can be checked while the policies in force are invalid
                user_policies = ()
            policies = merge_policies((*user_policies, policy))[-1:]
    warnings: list[str] = []
    if options.tools:
        definitions = iter_definitions(options.tool_definitions())
        metadata = [tool for definition in definitions if (tool := tool_metadata(definition)) is not None]
        warnings = [
            f"{policy.name}: pattern {pattern!r} of toolset {name!r} matches no tool"
            for policy in policies
            for name, toolset in policy.toolsets.items()
            for pattern in unmatched_patterns(toolset, metadata)
        ]
    lines = [
        f"{printable(policy.name)}: ok ({len(policy.toolsets)} toolsets, {len(policy.principals)} principals, "
        f"{len(policy.roles)} roles)"
        for policy in policies
    ]
    options.report(
        {"policies": [policy.name for policy in policies], "warnings": warnings},
        *(lines or ["No policy."]),
        *(f"Warning: {printable(warning)}" for warning in warnings),
    )


@command.subcommand("test")
@click.option("--as", "--principal", "principal", help="Who speaks (telegram:42).")
@click.option("--role", type=Choice(ROLES), help="Requested role [unified].")
@click.option("-s", "--session", type=SESSION, help="Requested session [the principal's].")
@click.option("--toolset", default="", help="Requested toolset.")
@click.option("--tool", help="Test only this tool; the exit code is 1 if it is denied.")
@click.option("--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions to test.")
def test(
    principal: str | None,
    role: str | None,
    session: str | None,
    toolset: str,
    tool: str | None,
    options: CommandOptions,
) -> int:
    """Show the grant of a principal, and the reasons.

    That is role, session, toolset, permissions and tools.

    Example: nexus config policy test --as telegram:42 --role worker --tools tools.json
    """
    definitions: list[dict[str, Any]] = list(options.tool_definitions())
    if tool is not None:
        definitions = _definitions_of(definitions, tool) or [{"name": tool}]
    requested: dict[str, Any] = {"role": role} if role else {}
    with options.open() as nx:
        if role == "worker" and session is None:
            session = "worker:test"
        arguments = {"principal": principal, "toolset": toolset, "tools": definitions, **requested}
        request = nx.request(Event(), session, cast("CallArguments", arguments))
        grant = decide(nx.policies.read(), request, partial(owning_names, nx.ledger.store))
    exit_code = 0
    if tool is not None and tool not in grant.tools:
        exit_code = NOT_ALLOWED
    if options.as_json:
        emit(grant)
        return exit_code
    for name, value in (
        ("role", grant.role),
        ("person", grant.person or "(unknown)"),
        ("session", grant.session),
        ("toolset", grant.toolset or "(all tools)"),
        ("permissions", ", ".join(grant.permissions) or "(none)"),
    ):
        click.echo(f"{name:<12} {printable(value)}")
    for reason in grant.why:
        click.echo(f"  {printable(reason)}")
    for warning in grant.warnings if tool is None else ():
        click.echo(f"Warning: {printable(warning.message)}")
    decisions = [_Decision(name, "allowed", "") for name in grant.tools]
    decisions += [_Decision(denied.name, "denied", denied.reason) for denied in grant.denied_tools]
    if decisions:
        DECISIONS.print_rows(sorted(decisions))
    return exit_code


@command.subcommand("link")
@click.argument("principal")
@click.argument("person", required=False, default="")
def link(principal: str, person: str, options: CommandOptions) -> None:
    """Link PRINCIPAL to PERSON.

    The principal's session redirects to the person's; histories are not mixed. The old name stays as an alias. Without PERSON, the policy names it.

    Example: nexus config policy link telegram:42 ann
    """
    with options.open(writes=True) as nx:
        result = link_principal(nx.ledger, nx.policies.read(), principal, person)
    old = quoted(result.old)
    new = quoted(result.new)
    archived = quoted(result.target)
    texts = {
        "renamed": f"Renamed session {old} to {new}; {old} is an alias now.",
        "merged": f"{old} redirects to {new} now; its own history is the archived session {archived}.",
        "aliased": f"{old} redirects to {new} now.",
        "nothing": f"No change: {old} redirects to {new} already, or neither session exists.",
    }
    options.report(result, texts[result.kind])


def _definitions_of(definitions: list[dict[str, Any]], tool: str) -> list[dict[str, Any]]:
    """Return the definitions of a tool."""
    matches: list[dict[str, Any]] = []
    for definition in iter_definitions(definitions):
        if getattr(tool_metadata(definition), "name", "") == tool:
            matches.append(dict(definition))
    return matches
