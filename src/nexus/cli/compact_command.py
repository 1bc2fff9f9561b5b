"""`nexus compact`: a summary in place of older messages, which stay in the ledger."""

from __future__ import annotations

import click
import msgspec

from nexus.cli._options import (
    BUDGET_OPTION,
    MODEL_OPTION,
    PROFILE_OPTION,
    CommandOptions,
    command_options,
    profile_option,
    resolve_session,
)
from nexus.cli._output import emit, format_ref, progress_bar, quoted
from nexus.compaction import NOTHING
from nexus.render.console import printable, printable_lines


@click.command("compact")
@click.argument("session")
@click.argument("focus", default="")
@MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@click.option(
    "--to",
    "percent",
    type=click.IntRange(5, 95),
    default=60,
    show_default=True,
    help="Target size, in percent of the available tokens.",
)
@click.option(
    "--summarizer", default="", help="Model of an OpenAI-compatible server that writes the summary [extractive]."
)
@click.option("--base-url", default="", help="Server of the summarizer [OpenAI's].")
@click.option("--dry-run", is_flag=True, help="Show what would be summarized; write nothing.")
@command_options
def command(
    session: str,
    focus: str,
    model: str,
    budget: int | None,
    profile: str,
    percent: int,
    summarizer: str,
    base_url: str,
    options: CommandOptions,
    *,
    dry_run: bool,
) -> None:
    """Replace older messages of SESSION with a summary. FOCUS names topics that the summary should keep.

    Nothing is deleted; `nexus undo` reverts it. The newest messages (at most three turns), pins and the first user
    message stay.

    Example: nexus compact main "focus on decisions"
    """
    profile, profile_file = profile_option(profile)
    with options.open(**profile_file) as nx:
        label = resolve_session(nx, session)
        plan = nx.plan(label, share=percent / 100, model=model, budget=budget, profile=profile)
        if dry_run and options.as_json:
            emit({"session": label, "plan": msgspec.to_builtins(plan)})
            return
        if dry_run and plan is not None:
            click.echo(
                f"Session {quoted(label)}: {plan.messages:,} messages, up to message {format_ref(plan.until)}, would "
                f"become a summary of at most {plan.summary_tokens:,} tokens."
            )
            return
        if summarizer:
            from nexus.compaction.openai_summarizer import OpenAISummarizer

            nx.fallback_summarizer.model = OpenAISummarizer(summarizer, base_url=base_url)
        outcome = NOTHING
        if plan is not None:
            with progress_bar("Summarizing") as progress:
                outcome = nx.compact(label, focus=focus, plan=plan, progress=progress)
    if options.as_json:
        emit({"session": label, **msgspec.to_builtins(outcome)})
        return
    if not outcome:
        click.echo(f"Session {quoted(label)} not compacted: {outcome.reason}.")
        return
    for attempt in outcome.attempts:
        click.echo(f"Summary by {printable(attempt.method)} rejected: {printable(attempt.reason.rstrip('.'))}.")
    click.echo(
        f"Session {quoted(label)}: {outcome.messages:,} messages are now a summary of {outcome.summary_tokens:,} tokens "
        f"(by {printable(outcome.method)}, entry {outcome.entry}). Context: about {outcome.tokens_before:,} tokens "
        f"before, {outcome.tokens_after:,} now. Revert it: nexus undo"
    )
    click.echo(f"\n{printable_lines(outcome.summary)}")
