"""`nexus compact`: older messages as a summary, without losing them."""

from __future__ import annotations

import click
import msgspec

from nexus.cli.listing import dotted, label_of, quoted
from nexus.cli.shared import common, emit, named_profile, open_here, progress_bar
from nexus.compaction import NOTHING, CompactionOutcome
from nexus.render.console import printable, printable_lines
from nexus.types.compaction_plan import CompactionPlan


@click.command("compact")
@click.argument("session")
@click.argument("focus", default="")
@click.option("-m", "--model", default="", help="Model whose window counts [claude-sonnet-4-5].")
@click.option("--budget", type=click.IntRange(min=1), help="Available tokens [the model's window less the reserves].")
@click.option("--profile", default="layered", show_default=True, help="Form of the context, a name or a file.")
@click.option(
    "--to",
    "percent",
    type=click.IntRange(5, 95),
    default=60,
    show_default=True,
    help="Percent of the available tokens to come down to.",
)
@click.option(
    "--summarizer", default="", help="Model that writes the summary, of an OpenAI-compatible server [by rule]."
)
@click.option("--base-url", default="", help="The summariser's server [OpenAI's].")
@click.option("--dry-run", is_flag=True, help="Only say what would be summarised.")
@common
def command(
    session: str,
    focus: str,
    model: str,
    budget: int | None,
    profile: str,
    percent: int,
    summarizer: str,
    base_url: str,
    workspace: str | None,
    ledger: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put a summary in the place of SESSION's older messages. FOCUS says what to keep above all.

    Nothing is deleted, and `nexus undo` takes it back. At most the last three turns stay as they are, with pins and the
    first task.

    Example: nexus compact main "focus on decisions"
    """
    profile, more = named_profile(profile)
    with open_here(workspace, ledger, **more) as nx:
        label = label_of(nx, session)
        plan = nx.plan(label, share=percent / 100, model=model, budget=budget, profile=profile)
        if dry_run:
            _foretell(label, plan, as_json=as_json)
            return
        if summarizer:
            from nexus.compaction.openai_summarizer import OpenAISummarizer

            nx.fallback_summarizer.model = OpenAISummarizer(summarizer, base_url=base_url)
        with progress_bar("summarising") as progress:
            done = nx.compact(label, focus=focus, plan=plan, progress=progress) if plan is not None else NOTHING
    if as_json:
        emit({"session": label, **msgspec.to_builtins(done)})
    elif not done:
        click.echo(f"Session {quoted(label)}: nothing was stored: {done.reason}.")
    else:
        _tell(label, done)


def _foretell(label: str, plan: CompactionPlan | None, *, as_json: bool) -> None:
    if as_json:
        emit({"session": label, "plan": msgspec.to_builtins(plan)})
    elif plan is None:
        click.echo(f"Session {quoted(label)}: {NOTHING.reason}.")
    else:
        click.echo(
            f"Session {quoted(label)}: {plan.messages:,} messages, up to message {dotted(plan.until)}, would become a "
            f"summary of at most {plan.summary_tokens:,} tokens."
        )


def _tell(label: str, done: CompactionOutcome) -> None:
    """The figures, who wrote it after which refusals, and the summary."""
    for tried in done.attempts:
        click.echo(f"Not taken from {printable(tried.method)}: {printable(tried.reason.rstrip('.'))}.")
    click.echo(
        f"Session {quoted(label)}: {done.messages:,} messages are now a summary of {done.summary_tokens:,} tokens "
        f"(by {printable(done.method)}, entry {done.entry}); the context went from about {done.tokens_before:,} to "
        f"{done.tokens_after:,} tokens. `nexus undo` takes it back."
    )
    click.echo(f"\n{printable_lines(done.summary)}")
