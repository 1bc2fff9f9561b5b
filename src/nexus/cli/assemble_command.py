"""`nexus assemble`: the context of the next call. Writes nothing to the ledger."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click
import msgspec

from nexus.assembled import AssembledContext
from nexus.cli.shared import common, emit, open_here, read_input, read_tools, write_text
from nexus.message import Message, Text
from nexus.render.console import printable_lines
from nexus.request import Event
from nexus.sources.media import image_from_file

FORMS = ("openai", "responses", "anthropic", "gemini", "messages", "text")


@click.command("assemble")
@click.argument("message")
@click.option(
    "-s",
    "--session",
    default="main",
    show_default=True,
    help="Session; a new name is a new, empty one.",
)
@click.option("-m", "--model", default="", help="Model [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--profile", default="layered", show_default=True, help="Form of the context.")
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
@click.option("--save", type=click.Path(dir_okay=False), help="Save the context here, for `nexus record`.")
@common
def command(
    message: str,
    session: str,
    model: str,
    budget: int | None,
    profile: str,
    form: str | None,
    images: tuple[str, ...],
    tools: str | None,
    timezone: str,
    channel: str,
    at: str | None,
    save: str | None,
    workspace: str | None,
    ledger: str | None,
    *,
    as_json: bool,
) -> None:
    """Make the context of the next call for MESSAGE (`-` reads it from standard input)."""
    text = read_input() if message == "-" else message
    content = (Text(text), *(image_from_file(Path(name)) for name in images))
    event = Event(content=content, at_ms=_at_ms(at), timezone=timezone, channel=channel)
    with open_here(workspace, ledger) as nx:
        ctx = nx.assemble(
            event,
            session=session,
            model=model,
            budget=budget,
            profile=profile,
            tools=read_tools(tools) if tools else (),
        )
    if save:
        write_text(save, json.dumps(ctx.to_json(), ensure_ascii=True))
    if as_json:
        emit(ctx.to_json())
    elif form is None:
        click.echo(printable_lines(str(ctx.report)))
    else:
        _show(ctx, form)


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
