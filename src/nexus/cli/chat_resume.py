"""The end of an earlier chat: the last exchange of a session, its age, and the command that continues it."""

from __future__ import annotations

import shlex

from nexus.cli._options import CommandOptions
from nexus.cli._output import beginning, count_noun
from nexus.cli.chat_agent import ChatAgentOptions
from nexus.engine import Engine
from nexus.errors import SessionBusy
from nexus.ledger.lease import session_lease
from nexus.render.console import visible_lines

QUESTION_CHARS = 200
ANSWER_CHARS = 600
ANSWER_LINES = 10

AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
"""Units of an age, by their seconds."""


def describe_age(milliseconds: int) -> str:
    """Return how long ago something was: `3 hours ago`; below a minute `just now`."""
    seconds = milliseconds // 1_000
    for unit_s, name in AGES:
        if seconds >= unit_s:
            return f"{count_noun(seconds // unit_s, name)} ago"
    return "just now"


def is_busy(nx: Engine, session: str) -> bool:
    """Return whether another turn holds the session."""
    try:
        with session_lease(nx.ledger.store, session, wait_s=0):
            return False
    except SessionBusy:
        return True


def first_lines(text: str) -> list[str]:
    """Return the first lines of a reply that are not blank, with `…` if more follow."""
    lines = [line.rstrip() for line in text[:ANSWER_CHARS].split("\n") if line.strip()]
    more = ["…"] if len(lines) > ANSWER_LINES or len(text) > ANSWER_CHARS else []
    return [*visible_lines(lines[:ANSWER_LINES]), *more]


def last_exchange(nx: Engine, session: str) -> tuple[str, str, list[str]] | None:
    """Return a session's last turn: its age, the message's beginning, the reply's first lines; None without a turn."""
    ledger = nx.ledger
    with nx.ledger.store.snapshot():
        if ledger.resolve(session) is None:
            return None
        turns = ledger.turns(session, ledger.thread_info(session).turn)
        if not turns:
            return None
        entries = ledger.entries(session, turns[-1].first_seq - 1, turns[-1].last_seq)
    messages = [row.message for entry in entries for row in entry.rows]
    questions = [message.text() for message in messages if message.role == "user"]
    answers = [text for message in messages if message.role == "assistant" and (text := message.text()).strip()]
    age = describe_age(nx.clock_ms() - (turns[-1].ended_ms or turns[-1].started_ms))
    question = ""
    if questions:
        question = beginning(questions[0], QUESTION_CHARS)
    return age, question, first_lines(answers[-1]) if answers else [f"({turns[-1].status})"]


def resume_command(options: CommandOptions, settings: ChatAgentOptions, session: str, model: str) -> str:
    """Return the command that continues a session with the options of this chat."""
    named_model = ""
    if not settings.local and (options.model or settings.base_url):
        named_model = model
    values = {
        "--workspace": options.workspace,
        "--ledger": options.typed_ledger,
        "--base-url": settings.base_url,
        "--key-variable": settings.key_variable,
        "--model": named_model,
        "--profile": options.profile,
        "--principal": settings.principal,
        "--toolset": settings.toolset,
        "--summarizer": settings.summarizer,
    }
    words = [part for name, value in values.items() if value for part in (name, value)]
    flags = [name for name, is_set in (("--local", settings.local), ("--yes", settings.yes)) if is_set]
    return shlex.join(["nexus", "chat", *words, *flags, "--session", session])
