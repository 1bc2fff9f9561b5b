"""`nexus proxy`: a proxy between clients and their models, which records, heals and fits; its state and its calls."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from nexus.cli._claude_projects import find_projects, projects_folder
from nexus.cli._groups import RunGroup
from nexus.cli._options import BUDGET_OPTION, CommandOptions, NexusGroup
from nexus.cli._output import emit, progress_bar
from nexus.cli._parameters import Choice
from nexus.cli._proxy_calls import ledger_of, open_call, open_recorded_call
from nexus.cli._proxy_status import print_state, simulated_costs
from nexus.cli._tables import print_explanation, print_table
from nexus.cli._tracing import send_traces
from nexus.cli._usage import reported_calls
from nexus.engine import Engine, open_engine
from nexus.engine.analysis.replay import cut_of_call
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadReference, NotFound, UnreadableFile
from nexus.interop.detect import read
from nexus.interop.importing import import_transcript
from nexus.ledger.cut_undo import undo_cut
from nexus.ledger.location import open_ledger
from nexus.proxy.estimate import SessionEstimate, estimate_session
from nexus.proxy.installation import CLIENTS, SettingsChange, installations, plan, plan_removal
from nexus.proxy.installation import install as write_installation
from nexus.proxy.installation import notes as installation_notes
from nexus.proxy.installation import uninstall as remove_installation
from nexus.proxy.pages import explained, explanation_of, text_of_call
from nexus.proxy.running import TOKEN_HEADER, RunningProxy, announced, running_proxies
from nexus.proxy.savings import newest_costs
from nexus.proxy.settings import ProxySettings, named_upstreams, read_settings
from nexus.render.console import printable
from nexus.server.logs import STANDARD_ERROR, open_logs
from nexus.server.security import Tokens, read_tokens
from nexus.tokens.starting_counter import small_counter
from nexus.types.counts import count_noun
from nexus.workspace.files.reader import cache_folder, home_folder

PORT = 8788
ESTIMATED_BUDGET = 100_000
"""Tokens of the budget that `estimate` assumes."""
SETTINGS = "proxy.toml"


class _ProxyGroup(RunGroup, NexusGroup):
    """A group with the options of its subcommand `run`."""


@click.group("proxy", cls=_ProxyGroup)
def command() -> None:
    """Run a proxy between clients and their models: it records each call, and heals and fits requests if asked to.

    Point a client at it: for example ANTHROPIC_BASE_URL=http://127.0.0.1:8788 claude. `nexus wrap` does both. Without a
    subcommand it is `nexus proxy run`.

    Example: nexus proxy --budget 100000
    """


def proxy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for mode, budget and upstreams."""
    options = [
        click.option(
            "--mode",
            type=Choice(("record", "heal", "fit")),
            help="`record` changes nothing, `heal` repairs invalid lists, `fit` keeps the budget [record; fit "
            "with --budget].",
        ),
        click.option(
            "--budget", type=click.IntRange(min=1), help="Tokens of a request, tools and system prompt included."
        ),
        click.option(
            "--upstream",
            "upstreams",
            multiple=True,
            metavar="[FORMAT=]URL",
            help="Server that requests go to, for all or for `anthropic`, `openai` or `gemini`; repeatable.",
        ),
        click.option(
            "--config", type=click.Path(dir_okay=False), metavar="FILE", help="Settings in TOML [~/.nexus/proxy.toml]."
        ),
        click.option("--no-cache-marks", is_flag=True, help="Add no cache breakpoints where a client sets none."),
        click.option("--fail-open", is_flag=True, help="Send requests over the budget that cannot be fitted."),
        click.option(
            "--no-text", is_flag=True, help="Record sizes, usage and hashes only: no text, and so no replay or undo."
        ),
        click.option(
            "--retain",
            metavar="TIME",
            help="Erase conversations whose newest call is older: 30d, 12h, 8w. Looks at the start, then every hour.",
        ),
        click.option(
            "--omitted-tool", is_flag=True, help="Add a tool with which the model reads omitted messages of its list."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def settings_of(
    options: CommandOptions,
    *,
    mode: str | None,
    upstreams: tuple[str, ...],
    config: str | None,
    no_cache_marks: bool,
    fail_open: bool,
    no_text: bool,
    retain: str | None,
    omitted_tool: bool,
    others: Sequence[dict[str, Any]] = (),
) -> ProxySettings:
    """Return the settings of a command line and its file; `others` are upstreams behind all. Raises BadConfig, BadSetting."""
    file = Path(config).expanduser() if config else home_folder() / SETTINGS
    changes: dict[str, Any] = {"upstreams": named_upstreams(upstreams)}
    if options.budget is not None:
        changes["budget"] = options.budget
        changes["mode"] = "fit"
    if mode is not None:
        changes["mode"] = mode
    if no_cache_marks:
        changes["cache_marks"] = False
    if fail_open:
        changes["fail_open"] = True
    if no_text:
        changes["no_text"] = True
    if retain is not None:
        changes["retain"] = retain
    if omitted_tool:
        changes["omitted_tool"] = True
    return read_settings(file if config or file.exists() else None, changes, others)


def open_proxy_engine(options: CommandOptions) -> AsyncEngine:
    """Return the engine that a proxy records with. Raises LedgerError, LedgerUnusable."""
    store = open_ledger(None, ledger_of(options), home_folder())
    try:
        return AsyncEngine(open_engine(None, ledger=store, counter=small_counter(cache_folder(home_folder()))))
    except BaseException:
        store.close()
        raise


@command.subcommand("run")
@click.option("--host", default="127.0.0.1", help="Address to listen at [127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, help=f"Port; 0 is a free one [{PORT}].")
@proxy_options
@click.option(
    "--token-file", type=click.Path(dir_okay=False), help="File with lines `TOKEN USER`; requests need a token then."
)
@click.option("--allow-remote", is_flag=True, help="Allow an address that other machines reach. It needs --token-file.")
@click.option("--allow-host", multiple=True, help="Name of this server in the Host header; repeatable.")
@click.option("--allow-origin", multiple=True, help="Site whose pages may call this server; repeatable.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=30.0, help="Seconds for running answers at the end [30]."
)
@click.option("--error-log", default="-", metavar="FILE", help="File of the log, in JSON lines [standard error].")
def run(
    options: CommandOptions,
    *,
    host: str,
    port: int,
    token_file: str | None,
    allow_remote: bool,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    grace: float,
    error_log: str,
    **chosen: Any,
) -> int:
    """Run a proxy until SIGTERM or Ctrl-C.

    It changes nothing unless --mode or --budget says so. The records are in ~/.nexus/proxy.db, or in --ledger.

    Example: nexus proxy run --budget 100000 --port 8788
    """
    from nexus.proxy.serve import serve_proxy
    from nexus.server.http import open_socket, url_of

    send_traces()
    settings = settings_of(options, **chosen)
    if allow_remote and token_file is None:
        raise click.UsageError(
            "--allow-remote needs --token-file: others would use the proxy, and read what it records"
        )
    tokens: Tokens | None = read_tokens(Path(token_file)) if token_file else None
    listener = open_socket(host, port, allow_remote=allow_remote)
    url = url_of(listener)
    ledger = ledger_of(options)
    owner_token = secrets.token_urlsafe(32)

    def started() -> None:
        if options.as_json:
            emit({"url": url, "mode": settings.mode, "ledger": ledger, "pid": os.getpid()})
        else:
            click.echo(f"Nexus proxy at {url}, {_described(settings)}. Stop with Ctrl-C.")
            if settings.no_text:
                click.echo("Without text: no replay, no undo. Reports: nexus proxy status, nexus proxy call ID")
            else:
                click.echo(f"Records: nexus sessions --ledger {printable(ledger)}")
            if settings.retain:
                click.echo(f"Conversations are erased {settings.retain} after their newest call.")
        sys.stdout.flush()

    async def serve() -> None:
        async with open_proxy_engine(options) as nx:
            await serve_proxy(
                nx,
                settings,
                listener,
                owner_token=owner_token,
                tokens=tokens,
                hosts=(host, *allow_host),
                origins=allow_origin,
                grace_s=grace,
                started=started,
            )

    with (
        open_logs("", error_log or STANDARD_ERROR),
        announced(home_folder(), RunningProxy(url, os.getpid(), ledger, owner_token)),
    ):
        asyncio.run(serve())
    return 0


def _described(settings: ProxySettings) -> str:
    match settings.mode:
        case "fit":
            return f"at most {settings.budget:,} tokens a request" if settings.budget else "budgets by model"
        case "heal":
            return "repairs what providers refuse"
        case "off":
            return "off"
        case _:
            return "records and changes nothing"


@command.subcommand("status")
@click.option("--cost", "shows_cost", is_flag=True, help="Simulate the cost of the calls without the proxy.")
def status(options: CommandOptions, shows_cost: bool) -> None:
    """Show the running proxies, with their newest conversations and calls, and the causes of cache misses.

    --cost compares the input of the ledger's newest 500 calls, as reported, with a simulation: for `heal` and `fit`
    without the proxy, for `record` with cache breakpoints where the client set none.

    Example: nexus proxy status --cost
    """
    states: list[dict[str, Any]] = []
    for proxy in _running():
        state = {**_read(proxy, "/nexus/status"), "url": proxy.url, "pid": proxy.pid}
        if shows_cost:
            state["cost"] = simulated_costs(proxy.ledger)
        states.append(state)
    if options.as_json:
        emit(states)
        return
    for state in states:
        print_state(state)


@command.subcommand("call")
@click.argument("call_id", metavar="ID")
@click.option("--all", "every", is_flag=True, help="List each message of long ranges too.")
def call(options: CommandOptions, call_id: str, every: bool) -> None:
    """Show the call ID: its changes, and the state of each message with the reason.

    Each answer has its call's id in the header `x-nexus-call`.

    Example: nexus proxy call 1a2265197573b25e485
    """
    with open_call(options, call_id) as (nx, report):
        values = explained(nx, report, options.ledger)
        for cost in newest_costs(nx, {report.id}):
            values["cost"] = msgspec.to_builtins(cost)
        if options.as_json:
            emit(values)
            return
        click.echo(text_of_call({**values, "explanation": None}), nl=False)
        if "explanation" in values:
            print_explanation(explanation_of(nx, report), every=every, as_json=False)


@command.subcommand("undo")
@click.argument("call_id", metavar="ID")
def undo(options: CommandOptions, call_id: str) -> None:
    """Undo the cut with which the call ID was sent: the conversation's next calls begin with all of their messages.

    The rest is cut again to the same budget: raise it first (--budget). A running proxy notices it, and
    forks of the conversation are included.

    Example: nexus proxy undo 1a2265197573b25e485
    """
    with open_recorded_call(options, call_id) as (nx, recorded):
        cut = cut_of_call(nx.calls.dependencies, recorded)
        if cut is None:
            raise BadReference(f"call {call_id} was sent without a cut: there is nothing to undo", code="no_such_cut")
        sessions = undo_cut(nx.ledger.store, recorded.thread, cut)
    hidden = {"messages": cut.omitted_messages, "tokens": cut.omitted_tokens}
    options.report(
        {"call": call_id, "cut": cut.number, "hidden": hidden, "sessions": sessions},
        f"Cut {cut.number} is undone in {count_noun(len(sessions), 'session')}: {', '.join(map(printable, sessions))}.",
        f"The next call begins with all messages ({cut.omitted_messages:,} were omitted, about {cut.omitted_tokens:,} "
        "tokens). The rest is cut again if the budget is too small.",
    )


@command.subcommand("doctor")
@click.option(
    "--config", type=click.Path(dir_okay=False), metavar="FILE", help="Settings in TOML [~/.nexus/proxy.toml]."
)
def doctor(options: CommandOptions, config: str | None) -> int:
    """Check clients, addresses, keys, upstream servers, and leftovers of other proxies. Nothing is changed.

    The exit code is 1 if there is a problem.

    Example: nexus proxy doctor
    """
    from nexus.proxy.doctor import examine

    file = Path(config).expanduser() if config else home_folder() / SETTINGS
    settings = read_settings(file if config or file.exists() else None, {})
    home = home_folder()
    findings = [*examine(settings, running_proxies(home), installations(home), os.environ, Path.home())]
    if options.as_json:
        emit(findings)
    else:
        print_table(
            ("state", "subject", "finding"),
            [(finding.state, finding.subject, finding.text) for finding in findings],
            wraps=("finding",),
        )
    return int(any(finding.state == "problem" for finding in findings))


@command.subcommand("install")
@click.argument("client", type=Choice(tuple(CLIENTS)))
@click.option("--url", default=f"http://127.0.0.1:{PORT}", help=f"Address of the proxy [http://127.0.0.1:{PORT}].")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def install(options: CommandOptions, client: str, url: str, yes: bool) -> None:
    """Let CLIENT (claude or codex) always go through the proxy, by an entry in its settings.

    What is written is shown first. Without a terminal and without --yes nothing is written.

    Example: nexus proxy install claude
    """
    change = plan(client, url, home_folder(), os.environ, Path.home())
    new = change.installation
    if not options.as_json:
        _show_entries(change, f"{printable(new.file)} gets:")
        if not change.is_empty:
            for note in installation_notes(change, os.environ):
                click.echo(note)
    writes = not change.is_empty and (yes or _is_confirmed(options))
    if writes:
        write_installation(change, home_folder())
    leave = f"nexus proxy uninstall {client}"
    if options.as_json:
        emit({**msgspec.to_builtins(new), "written": writes, "installed": writes or change.is_empty})
    elif change.is_empty:
        click.echo(f"{client} goes to {new.url} already: nothing to write. To leave: {leave}")
    elif writes:
        click.echo(f"Written. {client} now goes to {new.url}. Start the proxy: nexus proxy. To leave: {leave}")
    else:
        click.echo("Nothing was written (to write it: add --yes).")


def _is_confirmed(options: CommandOptions) -> bool:
    """Ask on a terminal; False without one."""
    if options.as_json or sys.stdin is None or not sys.stdin.isatty():
        return False
    return click.confirm("Write it? All else in the file stays as it is", err=True)


def _show_entries(change: SettingsChange, heading: str) -> None:
    entries = {name: text for name, text in change.installation.entries.items() if name not in change.remaining}
    if change.is_empty or not entries:
        return
    click.echo(heading)
    for name, text in entries.items():
        lines = text.strip().splitlines()
        if change.installation.client == "claude":
            lines = [f'"env": {{"{name}": "{text}"}}']
        for line in lines:
            click.echo(f"  {printable(line)}")


@command.subcommand("uninstall")
@click.argument("client", type=Choice(tuple(CLIENTS)))
def uninstall(options: CommandOptions, client: str) -> None:
    """Take back what `install` wrote for CLIENT (claude or codex), and nothing that was changed since.

    Example: nexus proxy uninstall claude
    """
    change = plan_removal(client, home_folder())
    remove_installation(change, home_folder())
    if options.as_json:
        emit({**msgspec.to_builtins(change.installation), "remaining": change.remaining})
        return
    _show_entries(change, f"Taken back from {printable(change.installation.file)}:")
    for name in change.remaining:
        click.echo(f"Left as it is, because it was changed since: {name}")
    click.echo(f"{client} does not go through the proxy by its settings any more.")


@command.subcommand("estimate")
@click.argument("files", nargs=-1, type=click.Path(exists=True))
@BUDGET_OPTION
def estimate(options: CommandOptions, files: tuple[str, ...]) -> None:
    """Show the effect of a budget on past sessions of Claude Code: FILES, or all on this machine.

    Calls over the budget are counted by the reported usage. Costs are simulated, with and without the budget, so
    that they can be compared; system prompt and tools count as read from the cache.

    Example: nexus proxy estimate --budget 100000
    """
    budget = options.budget or ESTIMATED_BUDGET
    with open_engine(None, ledger=":memory:") as nx, progress_bar("Reading") as progress:
        names = [name for project in ([] if files else find_projects(projects_folder())) for name in project.files]
        paths = [*map(Path, files or names)]
        if not paths:
            raise click.UsageError(f"no sessions of Claude Code in {projects_folder()} (name FILES)")
        results: list[SessionEstimate] = []
        for number, path in enumerate(paths, 1):
            if progress:
                progress(number, len(paths))
            results += _estimates(nx, path, budget)
    if options.as_json:
        emit({"budget": budget, "sessions": results})
    else:
        _print_estimates(results, budget)


def _print_estimates(results: list[SessionEstimate], budget: int) -> None:
    changed = sorted((result for result in results if result.over), key=lambda result: -result.over)
    names = ("session", "calls", "over", "largest", "cost", "within")
    if changed:
        print_table(names, map(_estimate_row, changed), numbers=names[1:], wraps=("session",))
    calls = sum(result.calls for result in results)
    over = sum(result.over for result in results)
    share = f" ({100 * over / calls:.1f} %)" if calls else ""
    counts = f"{over:,} of {count_noun(calls, 'call')}{share} in {count_noun(len(results), 'session')}"
    click.echo(f"{counts} had more than {budget:,} tokens.")
    click.echo("All others would have gone on as they were.")
    before = sum(result.cost_usd or 0.0 for result in changed)
    after = sum(result.fitted_cost_usd or 0.0 for result in changed)
    if before:
        click.echo(f"Input of these sessions, simulated: ${before:.2f} as it was, ${after:.2f} within the budget.")
    refused = sum(result.refused for result in changed)
    if refused:
        click.echo(f"{count_noun(refused, 'call')} cannot be made within it: tools and system prompt leave too little.")


def _estimate_row(result: SessionEstimate) -> tuple[str, ...]:
    return (
        result.session,
        f"{result.calls:,}",
        f"{result.over:,}",
        f"{result.largest_prompt:,}",
        _dollars(result.cost_usd),
        _dollars(result.fitted_cost_usd),
    )


def _dollars(amount: float | None) -> str:
    return "" if amount is None else f"${amount:.2f}"


def _estimates(nx: Engine, path: Path, budget: int) -> list[SessionEstimate]:
    """Return the estimates of a file's sessions with reported usage; an unreadable file has none."""
    estimates: list[SessionEstimate] = []
    try:
        transcripts = [*read(path, None, lambda _bytes: None)]
    except UnreadableFile as error:
        click.echo(f"not read: {printable(str(path))}: {printable(str(error))}", err=True)
        return []
    for transcript in transcripts:
        for report in import_transcript(nx, transcript, "", dry_run=False):
            calls = [call for call in reported_calls(nx, report.session) if not call.is_summary]
            if calls:
                usages = [call.usage for call in calls]
                estimates.append(estimate_session(nx, report.session, calls[-1].model, usages, budget))
    return estimates


@command.subcommand("off")
def off(options: CommandOptions) -> None:
    """Let the running proxies pass everything through at once: nothing is recorded or changed until `nexus proxy on`.

    Example: nexus proxy off
    """
    _set_mode(options, "off")


@command.subcommand("on")
@click.option("--mode", type=Choice(("record", "heal", "fit")), default=None, help="The mode [the one before `off`].")
def on(options: CommandOptions, mode: str | None) -> None:
    """Let the running proxies record, heal or fit again, each in the mode that it had before `nexus proxy off`.

    Example: nexus proxy on
    """
    _set_mode(options, mode or "on")


def _set_mode(options: CommandOptions, mode: str) -> None:
    import httpx

    changed: list[dict[str, Any]] = []
    for proxy in _running():
        address = f"{proxy.url}/nexus/mode"
        answer = httpx.post(
            address, json={"mode": mode}, headers={TOKEN_HEADER: proxy.token}, trust_env=False, timeout=10
        )
        if answer.status_code != 200:
            raise click.UsageError(f"{proxy.url}: {answer.json().get('error')}")
        new_mode = answer.json()["mode"]
        changed.append({"url": proxy.url, "mode": new_mode})
        if not options.as_json:
            click.echo(f"{proxy.url}: {new_mode}")
    if options.as_json:
        emit(changed)


def _running() -> list[RunningProxy]:
    """Return the running proxies. Raises NotFound."""
    proxies = running_proxies(home_folder())
    if not proxies:
        raise NotFound("no proxy is running (start one: nexus proxy)", code="proxy_not_running")
    return proxies


def _read(proxy: RunningProxy, path: str) -> dict[str, Any]:
    """Return a page of a running proxy. Raises NotFound."""
    import httpx

    try:
        answer = httpx.get(f"{proxy.url}{path}", headers={TOKEN_HEADER: proxy.token}, trust_env=False, timeout=10)
        return answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise NotFound(f"proxy at {proxy.url} does not answer: {error}", code="proxy_not_running") from error
