"""`nexus services`: the tagged dialogue's services on a bus, and a client for one run."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import click
import msgspec

from nexus.agents import Limits
from nexus.bus import open_bus
from nexus.cli._exit_numbers import LIMIT_REACHED, MODEL_FAILED
from nexus.cli._models import NoKey, open_model
from nexus.cli._options import MODEL_OPTION, CommandOptions, NexusGroup
from nexus.cli._output import escape_json
from nexus.cli._tracing import send_traces
from nexus.engine import Engine, EngineOptions
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadSetting
from nexus.models import ModelClient, Models
from nexus.render.console import printable, printable_lines
from nexus.services.client import RunClient
from nexus.services.messages import Run, RunMetadata
from nexus.services.orchestrator import MAX_ITERATIONS, RunState
from nexus.services.serve import GRACE_S, parse_services, serve
from nexus.types.stream_events import Retry, StreamEvent, StreamStart, Token, ToolStatus
from nexus.workspace.times import parse_zone

BUS_OPTION = click.option("--bus", default="", metavar="URL", help="Address of the NATS server [$NEXUS_BUS].")
START_S = 5.0
"""Seconds that `send` waits for services when none are on the bus."""

PREFIX_OPTION = click.option(
    "--prefix", default="nexus", show_default=True, help="Prefix of the bus: others do not see each other."
)


@click.group("services", cls=NexusGroup, modules={"db": "db"})
def command() -> None:
    """Run the services of the tagged dialogue on a bus, send runs to them, and change their stored configuration.

    Example: nexus services run --bus nats://127.0.0.1:4222
    """


@command.subcommand("run")
@BUS_OPTION
@PREFIX_OPTION
@click.option("--only", default="", metavar="NAMES", help="Services, separated by commas [context,llm,orchestrator].")
@MODEL_OPTION
@click.option("--base-url", default="", help="Address of an OpenAI-compatible server, such as …/v1.")
@click.option("--key-variable", default="", help="Variable with the key of the server at --base-url.")
@click.option("--builtin-tools", is_flag=True, help="Offer the built-in tools: files, skills, memory and history.")
@click.option(
    "--max-steps", type=click.IntRange(min=1), default=MAX_ITERATIONS, show_default=True, help="Model calls of a run."
)
@click.option(
    "--grace", type=click.FloatRange(min=0), default=GRACE_S, show_default=True, help="Seconds for running turns."
)
def run(
    bus: str,
    prefix: str,
    only: str,
    base_url: str,
    key_variable: str,
    builtin_tools: bool,
    max_steps: int,
    grace: float,
    options: CommandOptions,
) -> None:
    """Run services until SIGTERM or Ctrl-C. More processes with the same bus and ledger share the work.

    Runs that were accepted are in the ledger: another process continues those that this one leaves.

    Example: nexus services run --bus nats://127.0.0.1:4222 --only context,llm
    """
    url = _bus_url(bus)
    names = parse_services(only)
    engine_options: EngineOptions = {"local_user": False}
    if options.model:
        engine_options["model"] = options.model
    nx = options.open(writes=True, **engine_options)
    try:
        if "llm" in names:
            models = _open_models(nx, base_url, key_variable)
        else:
            models = Models()
    except BaseException:
        nx.close()
        raise

    async def main() -> None:
        engine = AsyncEngine(nx)
        try:
            connection = await open_bus(url, prefix=prefix)
            try:
                async with serve(
                    connection,
                    engine,
                    models,
                    only=names,
                    builtin=builtin_tools,
                    limits=Limits(steps=max_steps),
                    grace_s=grace,
                ):
                    _report_start(options, names, nx.ledger.store.location)
                    await _signal()
            finally:
                await connection.close()
        finally:
            await models.aclose()
            await engine.close()

    send_traces()
    asyncio.run(main())
    if not options.as_json:
        click.echo("Stopped.")


def _open_models(nx: Engine, base_url: str, key_variable: str) -> ModelClient:
    """Return the client of the LLM service. Raises NoKey, BadSetting, PackageMissing."""
    key = os.environ.get(key_variable, "") if key_variable else ""
    if key_variable and not key:
        raise NoKey(f"no key for {base_url or nx.model}: set {key_variable}", variable=key_variable)
    advice = "name a server with --base-url, or run only the others: --only context,orchestrator"
    return open_model(nx.model, nx.credentials, base_url, key, advice=advice)


def _report_start(options: CommandOptions, names: tuple[str, ...], ledger: str) -> None:
    if options.as_json:
        _emit_line({"serving": names, "ledger": ledger, "pid": os.getpid()})
    else:
        click.echo(f"Serving {', '.join(names)} with ledger {printable(ledger)}. Stop: Ctrl-C")


async def _signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        with suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    for number in numbers:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(number)  # a second signal stops at once


@command.subcommand("send")
@click.argument("text")
@click.option("--owner", required=True, metavar="KEY", help="Key of the user.")
@click.option("--run-id", default="", help="Id of the run; the same id again is the same run [a new one].")
@BUS_OPTION
@PREFIX_OPTION
@click.option(
    "--timezone",
    default="",
    metavar="ZONE",
    help="The user's time zone: IANA name, offset, or a browser's minutes [UTC].",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, help="Seconds to wait."
)
def send(
    text: str,
    owner: str,
    run_id: str,
    bus: str,
    prefix: str,
    timezone: str,
    timeout: float,
    options: CommandOptions,
) -> int:
    """Send TEXT as a run of a user to the services, and print the reply as it comes.

    --json prints each event as a line, and the run's end. The exit code is 6 if the run failed, 7 at a limit. Without
    services it waits some seconds, as they may be starting, and fails.

    Example: nexus services send "Good morning" --owner ada --bus nats://127.0.0.1:4222
    """
    url = _bus_url(bus)
    metadata = RunMetadata(client_timezone_offset=_zone(timezone))

    async def main() -> RunState:
        connection = await open_bus(url, prefix=prefix)
        try:
            end = RunState(run_id, "", "")
            has_text = False
            client = RunClient(connection, start_s=START_S, on_absent=_report_wait)
            async for item in client.stream(Run(owner, text, run_id), metadata, timeout_s=timeout):
                if isinstance(item, RunState):
                    end = item
                if options.as_json:
                    _emit_line(item)
                elif isinstance(item, StreamStart) and has_text:
                    click.echo("\n[again: another process continues the run]", err=True)
                elif not isinstance(item, RunState):
                    has_text = _print_event(item) or has_text
            if not options.as_json and end.state == "done":
                click.echo("" if has_text else printable_lines(end.text))
            return end
        finally:
            await connection.close()

    end = asyncio.run(main())
    if end.state == "done":
        return 0
    if not options.as_json:
        click.echo(f"nexus: run {end.state}: {printable(end.reason)}", err=True)
    if "Limits." in end.reason:
        return LIMIT_REACHED
    return MODEL_FAILED


def _report_wait() -> None:
    click.echo("waiting for services…", err=True)


def _zone(text: str) -> str | int:
    """Return a time zone as a run's metadata have it; UTC for none. Raises BadParameter for an unknown one."""
    try:
        parse_zone(text or "UTC")
    except ValueError as error:
        raise click.BadParameter(f"{error} (use a name such as Europe/Paris, or an offset such as +02:00)") from error
    return text or 0


def _print_event(event: StreamEvent) -> bool:
    """Print an event; return whether it was text of the reply."""
    match event:
        case Token():
            click.echo(printable_lines(event.text), nl=False)
            return True
        case ToolStatus(status="started"):
            click.echo(f"[{printable(event.name)}]", err=True)
        case Retry():
            click.echo(f"\n[again: {printable(event.text)}]", err=True)
        case _:
            pass
    return False


def _emit_line(value: object) -> None:
    """Print a value as a line of JSON, at once."""
    click.echo(escape_json(msgspec.json.encode(value).decode()))


def _bus_url(bus: str) -> str:
    """Return the address of the bus. Raises BadSetting without one: a bus in this process has no other members."""
    url = bus or os.environ.get("NEXUS_BUS", "")
    if url in ("", "memory:"):
        raise BadSetting("no bus (name a NATS server: --bus nats://127.0.0.1:4222, or set NEXUS_BUS)")
    return url
