"""`nexus compact`, `undo`, `session pin` and `session unpin`: a summary in place of older messages, and messages that stay."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

from nexus.cli._listing import Column, Listing, number, wrapped
from nexus.cli._options import (
    BUDGET_OPTION,
    PROFILE_OPTION,
    SESSION_MODEL_OPTION,
    CommandOptions,
    line_to_type,
    nexus_command,
    session_argument,
)
from nexus.cli._output import beginning, count_noun, format_ref, progress_bar, quoted
from nexus.engine import Engine
from nexus.errors import BadReference
from nexus.ledger.search_text import all_text
from nexus.render.console import printable, printable_lines
from nexus.summarization import NOTHING
from nexus.types.compaction_plan import CompactionPlan
from nexus.types.ledger_entries import Entry, MessageRef

DEFAULT_PERCENT = 60
PINS = Listing(
    Column("entry", lambda pin: f"{pin['seq']}.{pin['ord']}"),
    number("turn"),
    Column("role"),
    wrapped("text", lambda pin: beginning(pin["text"])),
    wrapped("reason"),
)
_REF = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?", re.ASCII)


@nexus_command("compact")
@session_argument()
@click.argument("focus", default="")
@SESSION_MODEL_OPTION
@BUDGET_OPTION
@PROFILE_OPTION
@click.option(
    "--to",
    "percent",
    type=click.IntRange(5, 95),
    default=DEFAULT_PERCENT,
    show_default=True,
    help="Target size, in percent of the available tokens.",
)
@click.option("--summarizer", default="", help="Model that writes the summary [of the configuration, else extractive].")
@click.option("--base-url", default="", help="OpenAI-compatible server of the summarizer [its provider's].")
@click.option("--dry-run", is_flag=True, help="Show what would be summarized; write nothing.")
def command(
    session: str, focus: str, percent: int, summarizer: str, base_url: str, dry_run: bool, options: CommandOptions
) -> None:
    """Replace older messages of SESSION with a summary. FOCUS names topics that the summary should keep.

    Nothing is deleted; `nexus undo` reverts it. The newest messages (at most three turns), pins and the first user
    message stay.

    Example: nexus compact main "focus on decisions"
    """
    with options.session(session, needs_config=True) as (nx, label):
        model, profile = options.model_and_profile(nx, label)
        plan = nx.plan(label, share=percent / 100, model=model, budget=options.budget, profile=profile)
        if dry_run and (options.as_json or plan is not None):
            text = plan and (
                f"Session {quoted(label)}: {count_noun(plan.messages, 'message')}, up to message "
                f"{format_ref(plan.until)}, would become a summary of at most {plan.summary_tokens:,} tokens."
            )
            options.report({"session": label, "plan": plan}, text or "")
            return
        if summarizer := summarizer or nx.workspace_context.config.summarizer:
            from nexus.cli._models import summarizer_of

            nx.compactor.summarizer.model = summarizer_of(nx, summarizer, base_url)
        run_compaction(nx, label, focus, plan, options)


def run_compaction(nx: Engine, label: str, focus: str, plan: CompactionPlan | None, options: CommandOptions) -> None:
    """Carry a plan out, with a progress bar, and report the summary, its author and its cost."""
    outcome = NOTHING
    if plan is not None:
        with progress_bar("Summarizing") as progress:
            outcome = nx.compact(label, focus=focus, plan=plan, progress=progress)
    lines = [f"Session {quoted(label)} not compacted: {outcome.reason}."]
    if outcome:
        lines = [
            f"Summary by {printable(attempt.method)} rejected: {printable(attempt.reason.rstrip('.'))}."
            for attempt in dict.fromkeys(outcome.attempts)
        ]
        verb = "is" if outcome.messages == 1 else "are"
        if outcome.method == "extractive":
            author = outcome.method
        else:
            author = f"by {printable(outcome.method)}"
        cost = ""
        if outcome.call_tokens:
            cost = f", for {outcome.call_tokens:,} tokens"
        lines.append(
            f"Session {quoted(label)}: {count_noun(outcome.messages, 'message')} {verb} now a summary of "
            f"{count_noun(outcome.summary_tokens, 'token')} ({author}{cost}, entry {outcome.entry}). Context: about {outcome.tokens_before:,} "
            f"tokens before, {outcome.tokens_after:,} now. Revert it: {line_to_type('/undo', options, 'undo', label)}"
        )
        lines += [f"Memory: {printable(outcome.memory)}"] if outcome.memory else []
        lines += ["", printable_lines(outcome.summary)]
    options.report({"session": label, **msgspec.to_builtins(outcome)}, *lines)


@nexus_command("undo")
@session_argument("name")
@click.option("--redo", is_flag=True, help="Redo the compaction that was undone last.")
def undo(name: str, redo: bool, options: CommandOptions) -> None:
    """Undo the current compaction of session NAME.

    The messages it covers are shown again; nothing is deleted, and --redo reverts it. Turns are not undone:
    `nexus session rewind` moves a session back.

    Example: nexus undo main
    """
    with options.session(name) as (nx, label):
        if redo:
            compaction = nx.ledger.redo(label)
        else:
            compaction = nx.ledger.undo(label)
        _report_visible(nx, label, compaction, "redone" if redo else "undone", options)


def _report_visible(nx: Engine, label: str, compaction: Entry, change: str, options: CommandOptions) -> None:
    """Print the compaction that was undone or redone, and what later calls see now."""
    with nx.ledger.snapshot():
        visible = nx.ledger.visible(label)
        checkpoint = nx.ledger.live(label).checkpoint
    state: dict[str, Any] = {"first_entry": visible.first_seq, "messages": len(visible.rows)}
    text = f"{len(visible.rows):,} message{'' if len(visible.rows) == 1 else 's'}"
    if checkpoint is None:
        text = f"all {text}"
    elif checkpoint.kind == "clear":
        state["clear"] = checkpoint.seq
        text += f" since the clear at entry {checkpoint.seq}"
    else:
        covers = {name: checkpoint.body[name] for name in ("covers_from", "covers_to")}
        state["compaction"] = {"entry": checkpoint.seq, **covers, "summary": visible.summary}
        text = (
            f"the summary of entries {covers['covers_from']} to {covers['covers_to']} (compaction at entry "
            f"{checkpoint.seq}), then {text} from entry {visible.first_seq} on"
        )
    first = int(compaction.body["covers_from"])
    last = int(compaction.body["covers_to"])
    summary = f"a summary of entries {first} to {last}"
    options.report(
        {"session": label, change: {"entry": compaction.seq, "covers_from": first, "covers_to": last}, "shown": state},
        f"Session {quoted(label)}: the compaction at entry {compaction.seq} ({summary}) is {change}.",
        f"Later calls see {text}, as far as they fit.",
    )


def _parse_ref(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    """Return the entry and message of a reference; the message is None for a whole entry. Raises BadParameter."""
    if value is None:
        return None
    match = _REF.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a message reference: 12 is an entry, 12.0 its first message")
    return int(match[1]), int(match[2]) if match[2] else None


@nexus_command("pin")
@session_argument("name")
@click.argument("entry", required=False, callback=_parse_ref)
@click.option("--reason", default="", help="Reason, shown in the list of pins.")
def pin(name: str, entry: tuple[int, int | None] | None, reason: str, options: CommandOptions) -> None:
    """Pin a message of session NAME. ENTRY is an entry with all its messages (12), or one message (12.0).

    Forks inherit pins. Without ENTRY, list the pins. `nexus history NAME --refs` shows the references.

    Example: nexus session pin main 12.0 --reason "the user's requirements"
    """
    if entry is None and reason:
        raise click.UsageError("--reason requires an ENTRY")
    with options.session(name) as (nx, label):
        if entry is None:
            _list_pins(nx, label, options)
            return
        seq, order = entry
        entries = nx.ledger.entries(label, seq - 1, seq) if seq else []
        refs = [row.ref for entry in entries for row in entry.rows if order in (None, row.ref.ord)]
        if not refs:
            if not entries:
                problem = "not found"
            else:
                problem = f"has no {'messages' if order is None else f'message {order}'}"
            raise BadReference(
                f"entry {seq} of session {label!r} {problem} (show the references: nexus history NAME --refs)",
                code="bad_entry",
            )
        pinned = nx.ledger.live(label).pins
        refs = [ref for ref in refs if reason or ref not in pinned]  # a reason is stored for existing pins too
        for ref in refs:
            nx.ledger.pin(label, ref, reason)
        _report_pins(nx, label, "pinned", refs, options)


@nexus_command("unpin")
@session_argument("name")
@click.argument("entry", callback=_parse_ref)
@click.option("--reason", default="", help="Reason, stored in the history.")
def unpin(name: str, entry: tuple[int, int | None], reason: str, options: CommandOptions) -> None:
    """Remove a pin of session NAME. ENTRY without a message removes all pins of the entry.

    Example: nexus session unpin main 12.0
    """
    seq, order = entry
    with options.session(name) as (nx, label):
        pins = [ref for ref in nx.ledger.live(label).pins if ref.seq == seq]
        refs = pins if order is None else [MessageRef(seq, order)]
        if not refs:
            raise BadReference(
                f"entry {seq} of session {label!r} has no pins (list the pins: nexus session pin NAME)",
                code="bad_entry",
            )
        for ref in refs:
            nx.ledger.unpin(label, ref, reason)
        _report_pins(nx, label, "unpinned", refs, options)


def _list_pins(nx: Engine, label: str, options: CommandOptions) -> None:
    reasons: dict[MessageRef, str] = {}
    for checkpoint in nx.ledger.checkpoints(label):  # newest first: the last reason counts
        if checkpoint.kind == "pin":
            ref = MessageRef(checkpoint.body["seq"], checkpoint.body["ord"])
            reasons.setdefault(ref, str(checkpoint.body.get("reason", "")))
    pinned = [
        (row.ref, entry.turn, row.message.role, all_text(row.message.parts), reasons[row.ref])
        for ref in nx.ledger.live(label).pins
        for entry in nx.ledger.entries(label, ref.seq - 1, ref.seq)
        for row in entry.rows
        if row.ref == ref
    ]
    keys = ("seq", "ord", "turn", "role", "text", "reason")
    values = [dict(zip(keys, (ref.seq, ref.ord, *rest), strict=True)) for ref, *rest in pinned]
    PINS.print(values, options, empty=f"Session {quoted(label)} has no pins.")


def _report_pins(nx: Engine, label: str, change: str, refs: list[MessageRef], options: CommandOptions) -> None:
    pins = nx.ledger.live(label).pins
    changed = "already pinned."
    if refs:
        changed = f"{change} {', '.join(map(format_ref, refs))}. Pins now: {len(pins):,}."
    options.report({"session": label, change: refs, "pins": pins}, f"Session {quoted(label)}: {changed}")
