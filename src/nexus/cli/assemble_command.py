"""`nexus assemble`: the context of the next call. Writes nothing to the ledger."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nexus.assembled import AssembledContext
from nexus.cli.explaining import show
from nexus.cli.shared import common, emit, open_here, read_input, read_tools, write_text
from nexus.fit.cut import Strategy
from nexus.message import Message, Text
from nexus.recorded import recorded_call
from nexus.render.console import printable_lines
from nexus.replaying import Change, explained_call, what_if
from nexus.request import Event, Request, Routing
from nexus.sources.media import image_from_file

STRATEGIES = ("oldest_first", "middle_out")
FORMS = ("openai", "responses", "anthropic", "gemini", "messages", "text")


@click.command("assemble")
@click.argument("message", required=False)
@click.option(
    "-s",
    "--session",
    default="main",
    show_default=True,
    help="Session; a new name is a new, empty one.",
)
@click.option("-m", "--model", default="", help="Model [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--profile", help="Form of the context [layered, or that of the recorded call].")
@click.option(
    "--as", "form", type=click.Choice(FORMS), help="Print a request body, the messages or the text [a report]."
)
@click.option("--image", "images", multiple=True, type=click.Path(dir_okay=False), help="Image file; may be repeated.")
@click.option(
    "--tools", type=click.Path(dir_okay=False), help="JSON file with tool definitions, of any provider's form."
)
@click.option("--timezone", default="", help="The user's time zone (IANA name).")
@click.option("--channel", default="", help="Channel that the message came through.")
@click.option("--at", help="Time of the message, ISO 8601 [now].")
@click.option(
    "--turn", type=click.IntRange(min=1), help="Put the message of this recorded turn's call in its place again."
)
@click.option("--call", type=click.IntRange(min=1), help="Number of the call in the turn [its last].")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="What a cut leaves out [oldest_first].")
@click.option("--skill", "skills", multiple=True, help="Show this skill in full; may be repeated.")
@click.option("--explain", is_flag=True, help="Show what becomes of each block, tool and message.")
@click.option("--all", "every", is_flag=True, help="With --explain: list each message, also of long ranges.")
@click.option("--save", type=click.Path(dir_okay=False), help="Save the context here, for `nexus record`.")
@common
def command(
    message: str | None,
    session: str,
    model: str,
    budget: int | None,
    profile: str | None,
    form: str | None,
    images: tuple[str, ...],
    tools: str | None,
    timezone: str,
    channel: str,
    at: str | None,
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
) -> None:
    """Make the context of the next call for MESSAGE (`-` reads it from standard input).

    With --turn: of a call that was recorded, as it would be with another budget, model, profile, strategy, message or
    other tools. Nothing is written.

    Example: nexus assemble --session main --turn 7 --budget 8000 --explain
    """
    _check(message, turn, call, save)
    if turn is not None and skills:
        raise click.UsageError("--skill is for a new message; a recorded call has the skills that it had.")
    text = read_input() if message == "-" else message
    content = (*((Text(text),) if text is not None else ()), *(image_from_file(Path(name)) for name in images))
    event = Event(content=content, at_ms=_at_ms(at), timezone=timezone, channel=channel)
    given = tuple(read_tools(tools)) if tools else None
    options: dict[str, Any] = {"strategy": strategy} if strategy else {}
    with open_here(workspace, ledger, **options) as nx:
        if turn is not None:
            change = Change(model, budget, profile or "", strategy, given, event if content else None)
            made = what_if(nx.kit, recorded_call(nx.store, session, turn, call), change)
            ctx, told = made.ctx, explained_call(nx.kit, made) if explain else None
        else:
            request = Request(event, Routing(session), model=model or nx.model, tools=given or ())
            request = replace(request, available_tokens=budget, profile=profile or "layered", skills=skills)
            ctx, told = nx.assemble_request(request), nx.explain_request(request) if explain else None
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
        _show(ctx, form)


def _check(message: str | None, turn: int | None, call: int | None, save: str | None) -> None:
    """Raises UsageError for options that do not go together."""
    if message is None and turn is None:
        raise click.UsageError("Missing argument 'MESSAGE': what is said, or `-`, or --turn for a recorded one.")
    if turn is None and call is not None:
        raise click.UsageError("--call is of a recorded turn: give --turn too.")
    if turn is not None and save:
        raise click.UsageError("--save is for a context that is to be recorded; that of --turn is not.")


def _show(ctx: AssembledContext, form: str) -> None:
    match form:
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
