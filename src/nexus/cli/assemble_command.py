"""`nexus assemble`: the context of the next call. Writes nothing to the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nexus.analysis.replay import ReplayOverrides, explain_call, what_if
from nexus.assembly.fit.cut import Strategy
from nexus.assembly.request_args import build_request
from nexus.cli.explaining import show
from nexus.cli.shared import common, emit, named_profile, open_here, read_input, read_tools, write_text
from nexus.context import AssembledContext
from nexus.engine import Engine
from nexus.ledger.recorded_calls import recorded_call
from nexus.render.console import printable, printable_lines
from nexus.tokens.counter import TokenCounter
from nexus.types.block import ContextWarning
from nexus.types.message import Image, Message, Part, Text
from nexus.types.request import Attachment, Event, Request
from nexus.workspace.attachments import attachment_from_file, named_lines
from nexus.workspace.images.load import read_image

STRATEGIES = ("oldest_first", "middle_out")
ROLES = ("manager", "worker", "unified")
FORMS = ("openai", "responses", "anthropic", "gemini", "messages", "text", "outline")


@click.command("assemble")
@click.argument("message", required=False)
@click.option(
    "-s",
    "--session",
    help="Session; a new name is a new, empty one [the policy's for the principal, else main].",
)
@click.option("-m", "--model", default="", help="Model [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--profile", help="Form of the context, a name or a file [layered, or the recorded call's].")
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="Print a request body, the messages, the text or its outline [a report].",
)
@click.option("--image", "images", multiple=True, type=click.Path(dir_okay=False), help="Image file; may be repeated.")
@click.option(
    "--attach", "files", multiple=True, metavar="FILE[:FIRST-LAST]", help="Text file, or lines of it; may be repeated."
)
@click.option(
    "--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, of any provider's form."
)
@click.option("--timezone", default="", help="The user's time zone: a name (IANA), an offset, or a browser's minutes.")
@click.option("--channel", default="", help="Channel that the message came through.")
@click.option("--chat-id", default="", help="Chat that the message came from.")
@click.option("--platform", default="", help="Platform that the user is on; a worker is not told.")
@click.option("--action", "actions", multiple=True, help="What can be done on the platform; may be repeated.")
@click.option("--at", help="Time of the message, ISO 8601 [now].")
@click.option(
    "--turn", type=click.IntRange(min=1), help="Put the message of this recorded turn's call in its place again."
)
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [its last].")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="What a cut leaves out [oldest_first].")
@click.option("--skill", "skills", multiple=True, help="Show this skill in full; may be repeated.")
@click.option("--block", multiple=True, metavar="NAME=TEXT", help="Text of yours by name; may be repeated.")
@click.option("--explain", is_flag=True, help="Show what becomes of each block, tool and message.")
@click.option("--all", "every", is_flag=True, help="With --explain: list each message, also of long ranges.")
@click.option("--principal", default="", help="Who speaks, as the policy names them (telegram:42).")
@click.option("--role", type=click.Choice(ROLES), help="Role of the agent [unified, or the policy's].")
@click.option("--task", default="", help="What a worker was spawned for.")
@click.option("--manager", default="", help="Session that spawned a worker, whose persona it inherits.")
@click.option("--persona", default="", help="Folder in personas that answers.")
@click.option("--toolset", default="", help="Toolset of the policy that bounds the tools.")
@click.option(
    "--mode", type=click.Choice(["repl", "server"]), help="How the agent is run, which the profile repl tells."
)
@click.option(
    "--clock", type=click.Choice(["message", "system"]), help="Where the profile repl tells the time [message]."
)
@click.option("--save", type=click.Path(dir_okay=False), help="Save the context here, for `nexus record`.")
@common
def command(
    message: str | None,
    session: str | None,
    model: str,
    budget: int | None,
    profile: str | None,
    form: str | None,
    images: tuple[str, ...],
    files: tuple[str, ...],
    tools: str | None,
    turn: int | None,
    call: int | None,
    strategy: Strategy | None,
    skills: tuple[str, ...],
    save: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    explain: bool,
    every: bool,
    as_json: bool,
    **who: Any,
) -> None:
    """Make the context of the next call for MESSAGE (`-` reads it from standard input).

    With --turn: of a recorded call, with another budget, model, profile, strategy, message, tools or skills.

    Example: nexus assemble --session main --turn 7 --budget 8000 --explain
    """
    event, run = _event(who), {"mode": who.pop("mode"), "clock": who.pop("clock"), "strategy": strategy}
    _check(message, turn, call, save, who)
    text = read_input() if message == "-" else message
    given = tuple(read_tools(tools)) if tools else None
    options: dict[str, Any] = {name: value for name, value in run.items() if value}
    profile, more = named_profile(profile or "")
    with open_here(workspace, ledger, **options, **more) as nx:
        event = replace(event, content=_content(nx, text, images, model), attachments=_attached(nx, files))
        if turn is not None:
            said = event if event.content else None
            change = ReplayOverrides(model, budget, profile, strategy, given, said, skills or None)
            made = what_if(nx.replay_deps, recorded_call(nx.store, session or "main", turn, call), change)
            ctx, told = made.ctx, explain_call(nx.replay_deps, made) if explain else None
        else:
            request = _request(event, session, who)
            request = replace(request, model=model or nx.model, tools=given or ())
            request = replace(request, available_tokens=budget, profile=profile or "layered", skills=skills)
            ctx, told = nx.assemble_request(request), nx.explain_request(request) if explain else None
        counter = nx.counter
    if told is not None:
        show(told, every=every, as_json=as_json)
        return
    if save:
        write_text(save, json.dumps(ctx.to_json(), ensure_ascii=True))
    if as_json:
        emit(ctx.to_json())
    elif form is None:
        click.echo(printable_lines(str(ctx.report)))
    else:
        _show(ctx, form, counter)


def _event(given: dict[str, Any]) -> Event:
    """The event without what is said, from the options that tell of it; they are taken out of `given`."""
    at, actions = given.pop("at"), given.pop("actions")
    fields = {name: given.pop(name) for name in ("timezone", "channel", "chat_id", "platform")}
    if actions and not fields["platform"]:
        raise click.UsageError("--action is of a platform: give --platform too.")
    return Event(at_ms=_at_ms(at), platform_actions=actions, **fields)


def _request(event: Event, session: str | None, who: Mapping[str, Any]) -> Request:
    """The request with who speaks, as whom and in which role the agent answers, and blocks of the application."""
    given = {name: value for name, value in who.items() if value and name != "block"}
    return build_request(event, session, **given, blocks=_blocks(who["block"]))


def _check(message: str | None, turn: int | None, call: int | None, save: str | None, who: Mapping[str, Any]) -> None:
    """Raises UsageError for options that do not go together."""
    if message is None and turn is None:
        raise click.UsageError("Missing argument 'MESSAGE': what is said, or `-`, or --turn for a recorded one.")
    if turn is None and call is not None:
        raise click.UsageError("--call is of a recorded turn: give --turn too.")
    if turn is not None and save:
        raise click.UsageError("--save is for a context that is to be recorded; that of --turn is not.")
    given = next((name for name, value in who.items() if value), None)
    if turn is not None and given is not None:
        raise click.UsageError(f"--{given} is for a new call; a recorded one has its own.")


def _content(nx: Engine, text: str | None, images: tuple[str, ...], model: str) -> tuple[Part, ...]:
    """The user's text and images. Raises BadImage for one that cannot be shown: whoever names a file can name another."""
    shown: list[Image] = []
    for name in images:
        image, told = read_image(name, model=model or nx.model, config=nx.workspace_context.config.images)
        shown.append(image)
        _warn(told)
    return (*((Text(text),) if text is not None else ()), *shown)


def _blocks(given: tuple[str, ...]) -> dict[str, str]:
    """The texts by their names. Raises BadParameter for one without a name."""
    blocks: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{one!r} is no NAME=TEXT", param_hint="--block")
        blocks[name] = text
    return blocks


def _attached(nx: Engine, files: tuple[str, ...]) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    for given in files:
        name, lines = named_lines(given)
        attachment, told = attachment_from_file(
            name, lines, most_chars=nx.workspace_context.config.instructions.file_chars
        )
        found.append(attachment)
        _warn(told)
    return tuple(found)


def _warn(told: ContextWarning | None) -> None:
    if told is not None:
        click.echo(f"Warning: {printable(told.source)}: {printable(told.message)}", err=True)


def _show(ctx: AssembledContext, form: str, counter: TokenCounter) -> None:
    match form:
        case "outline":
            from nexus.cli.outlining import show_outline

            show_outline(ctx, counter)
        case "openai":
            emit(ctx.to_openai())
        case "responses":
            emit(ctx.to_responses())
        case "anthropic":
            emit(ctx.to_anthropic())
        case "gemini":
            emit(ctx.to_gemini())
        case "messages":
            system = [Message("system", (Text(ctx.system_prompt),))] if ctx.system_prompt else []
            emit(msgspec.to_builtins([*system, *ctx.messages]))
        case _:
            from nexus.render.console import context_text

            click.echo(context_text(ctx))


def _at_ms(at: str | None) -> int:
    if not at:
        return 0
    try:
        return int(datetime.fromisoformat(at).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(f"{at!r} is no ISO 8601 time, for example 2026-03-06T14:30:00Z") from error
