"""`nexus wrap`: a client behind a proxy of its own, which ends with it and leaves no trace in the client's settings."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import click

from nexus.cli._options import CommandOptions, nexus_command
from nexus.cli._tracing import send_traces
from nexus.cli.proxy_command import ledger_of, open_proxy_engine, proxy_options, settings_of
from nexus.errors import NexusError, NotFound
from nexus.proxy.pages import summary_of
from nexus.proxy.running import RunningProxy, announced
from nexus.proxy.savings import newest_costs, sum_costs
from nexus.proxy.settings import ProxySettings
from nexus.proxy.wrapping import CLIENTS, Wrapped, wrap
from nexus.render.console import printable
from nexus.server.logs import open_logs
from nexus.workspace.files.reader import home_folder

LOG = "proxy.log"
START_S = 30.0


@nexus_command("wrap", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@proxy_options
@click.argument("client", nargs=-1, type=click.UNPROCESSED, required=True)
def command(options: CommandOptions, client: tuple[str, ...], **chosen: Any) -> int:
    """Run CLIENT with its arguments behind a proxy: claude, codex, opencode, gemini, aider, llm or any program on an SDK.

    Only this process gets the address, by its environment and arguments: the client's settings stay as they are. Options
    of `nexus proxy run` come before the client's name. The exit code is the client's.

    Example: nexus wrap --budget 100000 claude
    """
    from nexus.server.http import open_socket, url_of

    send_traces()
    listener = open_socket("127.0.0.1", 0)
    url = url_of(listener)
    wrapped = wrap(client, url, os.environ)
    settings = settings_of(options, **chosen, others=wrapped.upstreams)
    ledger = ledger_of(options)
    name = Path(client[0]).name
    owner_token = secrets.token_urlsafe(32)
    state = RunningProxy(url, os.getpid(), ledger, owner_token, name)
    log = home_folder() / LOG
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        open_logs("", str(log)),
        announced(home_folder(), state),
        _proxy(options, settings, listener, owner_token) as ended,
    ):
        what = "recorded without text" if settings.no_text else "recorded"
        _say(f"{name} goes through {url} ({settings.mode}); {what} in {ledger}", options)
        for note in wrapped.notes:
            _say(note, options)
        code = _run(wrapped, os.environ)
    if ended and ended[0].startswith("0 calls"):
        _say(f"no call went through: {name} may have an address of its own in its settings", options)
    look = f"look: nexus sessions --ledger {ledger}"
    if settings.no_text:
        look = "without text: no replay, no undo"
    _say(f"{ended[0] if ended else 'no calls'}; {look}", options)
    return code


def _say(text: str, options: CommandOptions) -> None:
    if not options.as_json:
        click.echo(f"nexus: {printable(text)}", err=True)


@contextmanager
def _proxy(options: CommandOptions, settings: ProxySettings, listener: Any, owner_token: str) -> Generator[list[str]]:
    """Run a proxy in a thread for the block. Yield a list that has the sums of its calls afterwards."""
    from nexus.proxy.serve import serve_proxy

    ready = Event()
    ended: list[str] = []
    failed: list[BaseException] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stopping = asyncio.Event()
        running.append((asyncio.get_running_loop(), stopping))
        async with open_proxy_engine(options) as nx:
            proxy = await serve_proxy(
                nx, settings, listener, owner_token=owner_token, grace_s=2, started=ready.set, stopping=stopping
            )
            reports = proxy.reports.newest()
            savings = None
            with suppress(NexusError):  # the ledger may be damaged or full; the other sums are known
                costs = await nx.run(newest_costs, nx.engine, {report.id for report in reports})
                savings = sum_costs(costs, is_changing=True)
            ended.append(summary_of(reports, savings))

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)
        finally:
            ready.set()

    thread = Thread(target=run, name="nexus proxy")
    thread.start()
    ready.wait(START_S)
    if failed:
        raise failed[0]
    try:
        yield ended
    finally:
        loop, stopping = running[0]
        loop.call_soon_threadsafe(stopping.set)
        thread.join()


def _run(wrapped: Wrapped, environment: Mapping[str, str]) -> int:
    """Run the client until it ends, and return its exit code. Signals are the client's own. Raises NotFound."""
    try:
        child = subprocess.Popen(wrapped.command, env={**environment, **wrapped.variables})  # noqa: S603 - the user's command
    except OSError as error:
        names = ", ".join(CLIENTS)
        raise NotFound(
            f"client {wrapped.command[0]!r} not started: {error.strerror or error} (install it; known are {names})",
            code="client_missing",
        ) from error
    with _ignored_signals(child):
        code = child.wait()
    sys.stderr.flush()
    if code < 0:
        return 128 - code
    return code


@contextmanager
def _ignored_signals(child: subprocess.Popen[bytes]) -> Generator[None]:
    """Leave Ctrl-C to the client, which gets it from the terminal too, and pass SIGTERM on to it, for the block."""

    def pass_on(number: int, _frame: object) -> None:
        child.send_signal(number)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
