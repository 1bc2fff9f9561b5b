"""Document 000's `Topics`: where the services' messages go."""

from __future__ import annotations


class Topics:
    """Names of topics. docs/services.md has the content of their messages."""

    CONTEXT_BUILD_REQUEST = "context.build.request"
    CONTEXT_BUILD_RESPONSE = "context.build.response"
    LLM_REQUEST = "llm.request"
    LLM_PIECES = "llm.pieces"
    """First words of the topic of a caller that wants the pieces of replies as they come."""
    LLM_CANCEL = "llm.cancel"
    """For all processes: stop a call."""
    RUN_REQUEST = "run.request"
    RUN_END = "run.end"
    """A run has ended: done, failed or dropped."""
    RUN_CANCEL = "run.cancel"
    """For all processes: stop a run."""
    UI_EVENTS = "ui.events"
    COMMANDS = "commands"
    LEDGER = "services.ledger"
    """Which ledger the services have: a process asks when it starts."""
