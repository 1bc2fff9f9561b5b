"""`nexus assemble`, `context` and `record`: the next call's context, what fills its window, and the stored reply."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast, get_args

import click
import msgspec
from msgspec.structs import replace

from nexus.cli._options import (
    BUDGET_OPTION,
    HELP_ALL_OPTION,
    MODEL_OPTION,
    PROFILE_OPTION,
    SESSION,
    SESSION_MODEL_OPTION,
    TENANT_OPTION,
    TOOLS_OPTION,
    CommandOptions,
    RareOption,
    nexus_command,
    read_input,
    read_json,
    read_text,
    session_argument,
    write_text,
)
from nexus.cli._output import (
    PROVIDER_FORMATS,
    console,
    emit,
    escape_json,
    format_time,
    plain_output,
    print_warning,
    quoted,
    request_body,
)
from nexus.cli._parameters import Choice
from nexus.cli._sessions import resolve_id, resolve_session
from nexus.cli._tables import print_outline
from nexus.cli._usage import ReportedUsage, reported_usage
from nexus.context import AssembledContext
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.engine.analysis.past_window import PastCall, context_of_call, find_call
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import UnreadableFile
from nexus.render.console import context_text, printable_lines
from nexus.render.context_json import from_json
from nexus.tokens.counter import TokenCounter
from nexus.turnlog.context_log import context_entries
from nexus.turnlog.write import log_texts
from nexus.types.message import Message, Part, Text
from nexus.types.request import Attachment, Event
from nexus.types.settings import CallArguments, Strategy
from nexus.workspace.attachments import attachment_from_file, read_image, split_line_range

ROLES = ("manager", "worker", "unified")
FORMATS = (*PROVIDER_FORMATS, "messages", "turnlog", "text", "outline")


@nexus_command("assemble")
@click.argument("message", required=False)
@click.option(
    "-s",
    "--session",
    type=SESSION,
    help="Session; an unknown name is a new, empty one [the policy's for the principal, else main].",
)
@MODEL_OPTION
@BUDGET_OPTION
@click.option(
    "--profile", default="", help="Profile: a name, or a .toml or .py file [layered, or the recorded call's]."
)
@click.option(
    "--as",
    "output_format",
    type=Choice(FORMATS),
    help="Print a request body, the messages, a turn log, the text, or an outline (section headings) [a report].",
)
@click.option("--image", "images", multiple=True, type=click.Path(dir_okay=False), help="Image file; repeatable.")
@click.option(
    "--attach", "files", multiple=True, metavar="FILE[:FIRST-LAST]", help="Text file, or lines of it; repeatable."
)
@TOOLS_OPTION
@click.option(
    "--timezone", cls=RareOption, default="", help="The user's time zone: IANA name, offset, or a browser's minutes."
)
@click.option("--channel", cls=RareOption, default="", help="Channel of the message.")
@click.option("--chat-id", cls=RareOption, default="", help="Chat of the message.")
@click.option("--platform", cls=RareOption, default="", help="Platform of the user; not shown to workers.")
@click.option("--action", "actions", cls=RareOption, multiple=True, help="Action that the platform offers; repeatable.")
@click.option("--at", help="Time of the message, ISO 8601 [now].")
@click.option("--turn", type=click.IntRange(min=1), help="Rebuild the call of this recorded turn, with changes.")
@click.option("--call", cls=RareOption, type=click.IntRange(min=1), help="Number of the call in the turn [the last].")
@click.option(
    "--strategy", cls=RareOption, type=Choice(get_args(Strategy)), help="Strategy of a cut [keep_user_turns]."
)
@click.option("--skill", "skills", multiple=True, help="Include this skill in full; repeatable.")
@click.option(
    "--block",
    "blocks",
    cls=RareOption,
    multiple=True,
    metavar="NAME=TEXT",
    help="Text for the profile's block NAME; repeatable.",
)
@click.option("--principal", help="Who speaks, as named in the policy (telegram:42).")
@click.option(
    "--user-profile",
    cls=RareOption,
    type=click.Path(dir_okay=False),
    help="Profile of the principal, kept for later calls: a text or .json file ({} forgets it).",
)
@click.option("--role", cls=RareOption, type=Choice(ROLES), help="Role of the agent [unified, or the policy's].")
@click.option("--task", cls=RareOption, default="", help="Task of a worker.")
@click.option(
    "--manager",
    cls=RareOption,
    type=SESSION,
    default="",
    help="Session that spawned a worker, whose persona it inherits.",
)
@click.option("--persona", cls=RareOption, default="", help="Persona that answers: a folder in personas.")
@click.option("--toolset", cls=RareOption, default="", help="Toolset of the policy that limits the tools.")
@click.option(
    "--mode", cls=RareOption, type=Choice(["repl", "server"]), help="How the agent runs, shown by the profile repl."
)
@click.option(
    "--clock", cls=RareOption, type=Choice(["message", "system", "off"]), help="Where the time is shown [message]."
)
@click.option("--save", type=click.Path(dir_okay=False), help="Save the context to this file, for `nexus record`.")
@HELP_ALL_OPTION
def command(
    message: str | None,
    session: str | None,
    output_format: str | None,
    images: tuple[str, ...],
    files: tuple[str, ...],
    turn: int | None,
    call: int | None,
    strategy: Strategy | None,
    skills: tuple[str, ...],
    save: str | None,
    user_profile: str | None,
    options: CommandOptions,
    **fields: Any,
) -> None:
    """Assemble the context of the next call for MESSAGE (`-` reads it from standard input).

    With --turn, rebuild a recorded call with another budget, model, profile, strategy, message, tools or skills.
    --help-all shows the options for platforms, workers and profiles too.

    Example: nexus assemble --session main --turn 7 --budget 8000
    """
    engine: dict[str, Any] = {"run_mode": fields.pop("mode"), "clock": fields.pop("clock"), "strategy": strategy}
    event = _event(fields)
    if turn is None:
        if message is None:
            raise click.UsageError("Missing argument 'MESSAGE': a text, `-`, or --turn for a recorded one.")
        if call is not None:
            raise click.UsageError("--call requires --turn")
    elif save:
        raise click.UsageError("--save cannot be combined with --turn: a rebuilt call cannot be recorded")
    elif user_profile:
        raise click.UsageError("--user-profile cannot be combined with --turn: it is for new calls")
    elif new_only := next((name for name, value in fields.items() if value), None):
        raise click.UsageError(f"--{new_only.removesuffix('s')} cannot be combined with --turn: it is for new calls")
    text = read_input() if message == "-" else message
    definitions = options.tool_definitions() if options.tools else None
    profile_fields = _user_profile(user_profile) if user_profile else None
    model, budget, profile = options.model, options.budget, options.profile_name
    writes = profile_fields is not None and bool(fields["principal"] or session)
    with options.open(writes=writes, **{name: value for name, value in engine.items() if value}) as nx:
        attachments = tuple(_attachment(nx, file) for file in files)
        event = replace(event, content=_content(nx, text, images, model), attachments=attachments)
        if turn is not None:
            changes = ReplayOverrides(
                model, budget, profile, strategy, definitions, event if event.content else None, skills or None
            )
            ctx = nx.what_if(resolve_session(nx, session or "main"), turn, changes, call=call)
        else:
            changes = {name: value for name, value in fields.items() if value and name != "blocks"}
            changes |= {"model": model or nx.model, "budget": budget, "profile": profile, "skills": skills}
            label = resolve_id(nx, session) if session else session
            arguments = {**changes, "blocks": _blocks(fields["blocks"]), "tools": definitions or ()}
            request = nx.request(event, label, cast("CallArguments", arguments))
            if profile_fields is not None:
                nx.user_profiles.put(nx.preparation.person(request), profile_fields)
            ctx = nx.assemble_request(request)
        counter = nx.counter
    if save:
        write_text(save, json.dumps(ctx.to_json(), ensure_ascii=True), private=True)
    if options.as_json:
        emit(ctx.to_json())
    else:
        _print_context(ctx, output_format, counter)


def _user_profile(path: str) -> dict[str, Any]:
    """Return the user's profile in a file: a JSON object, or a text. Raises UnreadableFile."""
    if not path.endswith(".json"):
        return {"friends_profile": read_text(path)}
    value = read_json(path)
    if not isinstance(value, dict):
        raise UnreadableFile(f"'{path}' not readable as a user's profile: no JSON object")
    return cast("dict[str, Any]", value)


def _event(fields: dict[str, Any]) -> Event:
    """Return the event without its content, from its options, which are removed from `fields`."""
    at = fields.pop("at")
    actions = fields.pop("actions")
    metadata = {name: fields.pop(name) for name in ("timezone", "channel", "chat_id", "platform")}
    if actions and not metadata["platform"]:
        raise click.UsageError("--action requires --platform")
    try:
        at_ms = 0
        if at:
            at_ms = int(datetime.fromisoformat(at).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise click.BadParameter(f"'{at}' is not an ISO 8601 time, such as 2026-03-06T14:30:00Z") from error
    return Event(at_ms=at_ms, platform_actions=actions, **metadata)


def _content(nx: Engine, text: str | None, images: tuple[str, ...], model: str) -> tuple[Part, ...]:
    """Return the user's text and images. Raises UnreadableFile: the user can name another file."""
    parts: list[Part] = [Text(text)] if text is not None else []
    for name in images:
        image, warning = read_image(name, model=model or nx.model, config=nx.workspace_context.config.images)
        parts.append(image)
        if warning is not None:
            print_warning(warning)
    return tuple(parts)


def _blocks(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the texts by block name. Raises BadParameter for a text without a name."""
    blocks: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r} is not NAME=TEXT", param_hint="--block")
        blocks[name] = text
    return blocks


def _attachment(nx: Engine, file: str) -> Attachment:
    name, lines = split_line_range(file)
    max_chars = nx.workspace_context.config.instructions.file_chars
    attachment, warning = attachment_from_file(name, lines, max_chars=max_chars)
    if warning is not None:
        print_warning(warning)
    return attachment


def _print_context(ctx: AssembledContext, output_format: str | None, counter: TokenCounter) -> None:
    match output_format:
        case None:
            click.echo(printable_lines(str(ctx.report)))
        case "outline":
            print_outline(ctx, counter)
        case "messages":
            system = [Message("system", (Text(ctx.system_prompt),))] if ctx.system_prompt else []
            emit([*system, *ctx.messages])
        case "turnlog":
            for entry_text in log_texts(context_entries(ctx)):
                click.echo(escape_json(entry_text), nl=False)
        case "text":
            click.echo(context_text(ctx))
        case _:
            emit(request_body(ctx, output_format))


@nexus_command("context")
@TENANT_OPTION
@session_argument(required=False)
@SESSION_MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@click.option("--message", help="The next message, which is counted too.")
@TOOLS_OPTION
@click.option("--at", "turn", type=click.IntRange(min=1), metavar="TURN", help="Show the last call of this turn.")
@click.option("--call", "number", type=click.IntRange(min=1), help="With --at: the number of the call [the last].")
@click.option("--peak", is_flag=True, help="Show the call with the fullest window, by reported input tokens.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Also write the image to this SVG file.")
def context(
    session: str | None,
    message: str | None,
    turn: int | None,
    number: int | None,
    peak: bool,
    svg: str | None,
    options: CommandOptions,
) -> None:
    """Show what fills the context window of SESSION's next call: layers, blocks, free space, reserves, cache boundary.

    The conversation is split into texts, thinking and tools, with its largest tool results. --at and --peak show a
    past call. For an imported one that is what its file has, in shares of its model's window.

    Without SESSION, show the session `main`, which may be empty.

    Example: nexus context main --peak
    """
    from nexus.cli._context_grid import grid_svg
    from nexus.render.window import window_report

    _check_past_options(message, turn, number, options, peak=peak)
    with options.open(reads_stored=session is not None) as nx:
        label = "main"
        if session is not None:
            label = resolve_session(nx, session)
        counter = nx.counter
        name = "next call"
        past_call = None
        usage = None
        if nx.ledger.resolve(label):
            usage = reported_usage(nx, label)
        if peak or turn is not None:
            past_call = find_call(nx, label, turn, number)
            ctx = context_of_call(nx, label, past_call)
            name = f"call {past_call.number:,} of {past_call.count:,} in turn {past_call.call.turn:,}"
        else:
            model, profile = options.model_and_profile(nx, label)
            ctx = nx.assemble(
                message if message is not None else NEXT_MESSAGE,
                session=label,
                model=model,
                budget=options.budget,
                profile=profile,
                tools=options.tool_definitions(),
            )
    if svg:
        write_text(svg, grid_svg(ctx, name))
    if options.as_json:
        facts = None
        if past_call:
            facts = {"turn": past_call.call.turn, "number": past_call.number, **msgspec.to_builtins(past_call.call)}
        emit({**window_report(ctx, counter), "reported": usage, "call": facts})
        return
    print_window(ctx, counter, usage if past_call is None else None, name)
    if past_call is not None:
        _print_reported(past_call, ctx)


def _check_past_options(
    message: str | None, turn: int | None, number: int | None, options: CommandOptions, *, peak: bool
) -> None:
    """Raise UsageError for options that contradict each other."""
    if peak and turn is not None:
        raise click.UsageError("--at and --peak exclude each other")
    if number is not None and turn is None:
        raise click.UsageError("--call requires --at")
    next_call_options = {
        "--message": message,
        "--tools": options.tools,
        "--model": options.model,
        "--budget": options.budget,
        "--profile": options.profile,
    }
    new_only = next((name for name, value in next_call_options.items() if value), None)
    if new_only and (peak or turn is not None):
        raise click.UsageError(f"{new_only} is for the next call (explain a past one with changes: nexus explain)")


def _print_reported(past_call: PastCall, ctx: AssembledContext) -> None:
    """Print time and reported input of a past call, with the count of this program."""
    counted = ctx.token_budget.used.total
    time = format_time(past_call.call.at_ms) or "time unknown"
    if past_call.call.input_tokens is None:
        click.echo(f"\nCall of {time}; no usage reported. Counted here: {counted:,}.")
        return
    window = ctx.token_budget.model_limit or ctx.accounting.model_info.max_input_tokens
    share = f"{100 * past_call.call.input_tokens / max(window, 1):.1f} % of a window of {window:,}"
    click.echo(
        f"\nCall of {time}. Reported: {past_call.call.input_tokens:,} input tokens, {share}. Counted here: {counted:,}."
    )
    if past_call.is_recorded:
        return
    if past_call.call.input_tokens > counted:
        missing = "The file has neither the system prompt nor the tools. "
        if ctx.system_prompt or ctx.tools:
            missing = ""
        click.echo(f"{missing}Counts differ by model, too.")
    else:
        click.echo("The tool sent less than its file contains: it may have left out old results or thinking.")


def print_window(
    ctx: AssembledContext, counter: TokenCounter, usage: ReportedUsage | None, name: str = "next call"
) -> None:
    """Print what fills the window of a context, and the session's reported usage."""
    from nexus.cli._context_grid import contents_table, context_grid

    out = console(width=100)
    out.print(context_grid(ctx, call=name, plain=plain_output(), width=out.width))
    out.print(contents_table(ctx, counter))
    if usage is not None and usage.is_imported and usage.models:
        out.print()
        counted = f"Counted here: {ctx.token_budget.used.total:,}."
        out.print(printable_lines(f"Reported: {usage.lines()[0]}. {counted}"), markup=False, highlight=False)
        out.print(printable_lines(f"The fullest call so far: nexus context {quoted(ctx.session_label)} --peak"))


@nexus_command("record")
@click.argument("context", type=click.Path(dir_okay=False))
@click.argument("reply", type=click.Path(dir_okay=False))
def record(context: str, reply: str, options: CommandOptions) -> None:
    """Store a turn: CONTEXT (from `assemble --save`) and REPLY (a provider's complete response, as JSON)."""
    saved = read_json(context)
    if not isinstance(saved, dict):
        raise UnreadableFile(
            f"'{context}' not readable as a context (save one with `nexus assemble --save`)", code="bad_context"
        )
    ctx = from_json(cast("dict[str, Any]", saved))
    with options.open(writes=True) as nx:
        committed = nx.record(ctx, read_json(reply))
    cut = " and the cut" if ctx.cut else ""
    options.report(
        {"session": ctx.session_label, **msgspec.to_builtins(committed)},
        f"Recorded turn {committed.turn}{cut} in session {quoted(ctx.session_label)}; its head is entry {committed.head}."
        if committed.added
        else "Nothing new: this context and reply were recorded before.",
    )
