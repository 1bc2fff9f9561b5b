# Over 600 lines: one class for each error, in one tree.
"""The error tree: each class is something that a caller handles in a way of its own; `code` says what exactly happened.

NexusError
├── BudgetTooSmall, ContextOverflow, LimitReached, BadEvent, BadReply, ModelCallFailed
├── PackageMissing, NotFound, BadSetting, BadConfig, OverCap, UnreadableFile, BadTool
├── ToolCallFailed, NotAllowed, NotAccepted, AgentError, ServerCallFailed, SummarizerFailed
├── BadFact, MemoryBusy
├── CredentialError
│   └── NoCredential
├── LedgerError
│   ├── LedgerUnavailable, LedgerUnusable, LedgerDamaged, LedgerBusy, LedgerFull
│   ├── HeadMoved, IdempotencyConflict, CompactionSuperseded, SessionBusy
│   ├── TurnSuperseded
│   │   └── LateReply
│   └── BadReference, NoSuchSession, CannotReplay
└── BusError
    └── BadBusMessage, BusUnavailable, BusNoResponder, BusDeadlineExceeded, BusRequestFailed
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "AgentError",
    "BadBusMessage",
    "BadConfig",
    "BadEvent",
    "BadFact",
    "BadReference",
    "BadReply",
    "BadSetting",
    "BadTool",
    "BudgetTooSmall",
    "BusDeadlineExceeded",
    "BusError",
    "BusNoResponder",
    "BusRequestFailed",
    "BusUnavailable",
    "CannotReplay",
    "CompactionSuperseded",
    "ContextOverflow",
    "CredentialError",
    "HeadMoved",
    "IdempotencyConflict",
    "LateReply",
    "LedgerBusy",
    "LedgerDamaged",
    "LedgerError",
    "LedgerFull",
    "LedgerUnavailable",
    "LedgerUnusable",
    "LimitReached",
    "MemoryBusy",
    "ModelCallFailed",
    "NexusError",
    "NoCredential",
    "NoSuchSession",
    "NotAccepted",
    "NotAllowed",
    "NotFound",
    "OverCap",
    "PackageMissing",
    "ServerCallFailed",
    "SessionBusy",
    "SummarizerFailed",
    "ToolCallFailed",
    "TurnSuperseded",
    "UnreadableFile",
]


class NexusError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: A stable word for what happened, such as `budget_too_small`: what programs compare, also over the wire. A class
            that covers several failures has a code for each (docs/errors.md lists them).
    """

    code: str = "error"

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        if code:
            self.code = code


# Calls, tokens and providers


class BudgetTooSmall(NexusError):
    """The parts that are never cut exceed the budget (docs/fitting.md). Nothing was sent.

    `is_lower_bound` is true if a message was so large that the other parts were not counted.
    """

    code = "budget_too_small"

    def __init__(
        self, available_tokens: int, needed_tokens: int, parts: Mapping[str, int], *, is_lower_bound: bool = False
    ) -> None:
        self.available_tokens = available_tokens
        self.needed_tokens = needed_tokens
        self.parts = dict(parts)
        self.is_lower_bound = is_lower_bound
        at_least = "at least " if is_lower_bound else ""
        sizes = ", ".join(f"{name} {tokens:,}" for name, tokens in self.parts.items() if tokens)
        super().__init__(
            f"budget of {available_tokens:,} tokens too small: the parts that are never cut need {at_least}"
            f"{needed_tokens:,}: {sizes} "
            "(use a larger budget or model, or shorten the largest part; nothing was sent)"
        )

    def scaled(self, factor: float, available_tokens: int, kept_back: int) -> BudgetTooSmall:
        """Return the error in a provider's tokens, `factor` per base token, rounded up."""
        parts = {name: math.ceil(tokens * factor) for name, tokens in self.parts.items()}
        if kept_back:
            parts["rounding"] = kept_back
        return BudgetTooSmall(available_tokens, sum(parts.values()), parts, is_lower_bound=self.is_lower_bound)


class ContextOverflow(NexusError):
    """A call and its smaller retries (`attempts`) did not fit. No reply was stored."""

    code = "context_overflow"

    def __init__(self, attempts: Iterable[Any], why: str) -> None:
        self.attempts = tuple(attempts)
        last = self.attempts[-1] if self.attempts else None
        sizes = "; ".join(f"{attempt.tokens:,}" for attempt in self.attempts)
        answer = f". The last error: {last.verdict.text}" if last is not None and last.verdict is not None else ""
        super().__init__(
            f"context too large: {why}. Tokens of all calls, by our count: {sizes or 'none'}{answer} (use a model with a larger "
            "window, or shorten system prompt, tools or message; no reply was stored)"
        )


class LimitReached(NexusError):
    """A limit of an agent's turn was reached (`nexus.agents.Limits`). Everything up to there is stored."""

    code = "limit_reached"


class BadEvent(NexusError, ValueError):
    """An event is none, is empty, has a field of a wrong type, or messages that no provider would take as new ones."""

    code = "bad_event"


class BadReply(NexusError):
    """A reply is neither a provider's response nor a valid AgentResult.

    With the code `incomplete_stream` a stream broke off before the end of the reply; the same call may succeed.
    """

    code = "bad_reply"


MODEL_CALL_KINDS = {
    "overflow": "context_overflow",
    "auth": "auth_failure",
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "content": "content",
    "overloaded": "model_error",
    "connection": "model_error",
    "bad_request": "model_error",
    "bad_reply": "model_error",
    "aborted": "unknown",
    "limit": "unknown",
    "error": "unknown",
}
"""`ModelCallFailed.kind` by kind of failure (`nexus.failure_of`)."""


class ModelCallFailed(NexusError):
    """A client got no reply of a model, after its retries; the provider's error is the `__cause__`.

    `kind` is `context_overflow`, `auth_failure`, `rate_limit`, `timeout`, `content` (refused or filtered), `model_error` or
    `unknown`, and `failure_kind` the finer word of `nexus.failure_of`. `retryable`: the same call may succeed later.
    `status` is 0 and `retry_after_s` None if unknown. `reply` is the `nexus.models.ModelReply` that was withheld, if any.
    """

    code = "model_call_failed"

    def __init__(
        self,
        text: str,
        failure_kind: str,
        *,
        retryable: bool = False,
        status: int = 0,
        retry_after_s: float | None = None,
        reply: Any = None,
        code: str = "",
    ) -> None:
        self.failure_kind = failure_kind
        self.kind = MODEL_CALL_KINDS.get(failure_kind, "unknown")
        self.retryable = retryable
        self.status = status
        self.retry_after_s = retry_after_s
        self.reply = reply
        super().__init__(text, code=code)


class SummarizerFailed(NexusError):
    """A summarizer gave no summary; the provider's error is the `__cause__`.

    With the code `summary_call_too_large` its request and answer exceed one call: `needed_tokens` of `limit_tokens`, both 0
    if the provider did not report them.
    """

    code = "summarizer_failed"

    def __init__(self, text: str, needed_tokens: int = 0, limit_tokens: int = 0, *, code: str = "") -> None:
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
        super().__init__(text, code=code)


# Tools, roles and agents


class BadTool(NexusError, ValueError):
    """A tool definition is in none of the providers' formats, its schema is invalid, or it has no JSON form."""

    code = "bad_tool"


class ToolCallFailed(NexusError):
    """A tool gave no result: it is unknown, got wrong arguments, cannot be called, or raised an error (the `__cause__`)."""

    code = "tool_call_failed"


class NotAllowed(NexusError):
    """The policy denies the role, session, toolset or tool of a call. Nothing was made.

    With the code `tool_not_allowed`, `tool` was called although it is denied to the `role` in the `toolset`: the `reason`.
    """

    code = "not_allowed"
    tool: str = ""
    toolset: str = ""
    role: str = ""
    reason: str = ""


def tool_not_allowed(tool: str, toolset: str, role: str, reason: str) -> NotAllowed:
    """Return the error for a call of a denied tool."""
    applied = f"toolset {toolset!r}, role {role}" if toolset else f"role {role}"
    error = NotAllowed(
        f"tool {tool!r} is not allowed ({applied}): {reason}. Do not run it; answer the call with this error",
        code="tool_not_allowed",
    )
    error.tool = tool
    error.toolset = toolset
    error.role = role
    error.reason = reason
    return error


class AgentError(NexusError):
    """An agent is closed, or the program that runs its turns (`nexus.agents.AgentProgram`) failed.

    Nothing was stored by a closed one; what a program had said is stored with its turn.
    """

    code = "agent_closed"


class NotAccepted(NexusError):
    """A broker did not accept or does not know an event, or a watcher missed events.

    With the code `ambiguous_event`, `candidates` has the session and principal of each event of that id.
    """

    code = "not_accepted"
    candidates: tuple[tuple[str, str], ...] = ()


def ambiguous_event(event_id: str, candidates: Iterable[tuple[str, str]]) -> NotAccepted:
    """Return the error for an event's id that several sessions or senders used."""
    events = tuple(candidates)
    names: list[str] = []
    for session, principal in events:
        of_principal = f", principal {principal!r}" if principal else ""
        names.append(f"session {session!r}{of_principal}")
    error = NotAccepted(
        f"event id {event_id[:80]!r} was used {len(events)} times: {'; '.join(names)} (say which one)",
        code="ambiguous_event",
    )
    error.candidates = events
    return error


class ServerCallFailed(NexusError):
    """A client of the server got an error: `code` is the server's, `rpc_code` JSON-RPC's, `status` HTTP's (0: no answer)."""

    code = "server_call_failed"

    def __init__(self, text: str, *, code: str = "", rpc_code: int = 0, status: int = 0) -> None:
        self.rpc_code = rpc_code
        self.status = status
        super().__init__(text, code=code)


# Settings and files


def install_command(extra: str) -> str:
    """Return the command that installs an extra. Until a release it runs in a clone of the repository."""
    return f"in a clone of Nexus: pip install '.[{extra}]'"


class PackageMissing(NexusError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""

    code = "package_missing"

    def __init__(self, package: str, needed_by: str, extra: str = "", *, command: str = "") -> None:
        self.package = package
        command = command or install_command(extra)
        super().__init__(f"package '{package}' not installed: {needed_by} needs it ({command})")


class NotFound(NexusError, LookupError):
    """No profile, agent, skill, fact or workspace has that name; the message says where they are listed.

    `numbers` are the facts that match, if several do (`no_such_fact`). Nothing was changed.
    """

    code = "not_found"

    def __init__(self, text: str, numbers: Iterable[int] = (), *, code: str = "") -> None:
        self.numbers = tuple(numbers)
        super().__init__(text, code=code)


class BadSetting(NexusError, ValueError):
    """An argument or setting is unknown, has a wrong type or is not one of its possible values."""

    code = "bad_setting"


class BadConfig(NexusError, ValueError):
    """A configuration, profile or policy file is invalid; `key` is empty if it cannot be read at all."""

    code = "bad_config"

    def __init__(self, file: str, key: str, expected: str, *, text: str = "", code: str = "") -> None:
        self.file = file
        self.key = key
        self.expected = expected
        where = f"{file}: {key}" if key else file
        super().__init__(f"{where}: {text or expected}", code=code)


def bad_policy(file: str, key: str, expected: str) -> BadConfig:
    """Return the error for an invalid policy file."""
    text = f"expected {expected} (no context is made until the policy is fixed)"
    return BadConfig(file, key, expected, text=text, code="bad_policy")


def bad_profile(file: str, key: str, expected: str) -> BadConfig:
    """Return the error for an invalid profile file."""
    return BadConfig(file, key, expected, text=f"expected {expected}", code="bad_profile")


class OverCap(NexusError):
    """A text is over its cap, in characters, and the configuration forbids truncation."""

    code = "over_cap"

    def __init__(self, origin: str, chars: int, cap_chars: int) -> None:
        self.origin = origin
        self.chars = chars
        self.cap_chars = cap_chars
        super().__init__(
            f"{origin} too long: {chars:,} characters, the cap is {cap_chars:,}, and instructions.caps is 'error' "
            "(shorten it, raise the cap, or set caps to 'report'; nothing was sent)"
        )


class UnreadableFile(NexusError):
    """A file, image or saved context cannot be opened, or is not in its declared format; `line` counts from 1, 0: unknown."""

    code = "unreadable_file"

    def __init__(self, text: str = "", line: int = 0, *, code: str = "") -> None:
        self.line = line
        super().__init__(text, code=code)


# Memory and credentials


class BadFact(NexusError, ValueError):
    """A text for memory is empty, too long, a duplicate, or seems to contain secrets (of `kinds`). Nothing was written."""

    code = "bad_fact"
    kinds: tuple[str, ...] = ()


def secret_found(kinds: Iterable[str]) -> BadFact:
    """Return the error for a text for memory that seems to contain secrets of these kinds."""
    secret_kinds = tuple(kinds)
    error = BadFact(
        f"text seems to contain a secret: {', '.join(secret_kinds)}; memory is sent to the model unchanged (remove it, or "
        "store it anyway: --force; nothing was written)",
        code="secret_found",
    )
    error.kinds = secret_kinds
    return error


class MemoryBusy(NexusError):
    """Another program locked or kept changing the memory files. Nothing was written; try again."""

    code = "memory_busy"


class CredentialError(NexusError):
    """A credential is invalid, or its list or keyring cannot be used. The message never contains a value."""

    code = "credential_error"


class NoCredential(CredentialError):
    """A credential is not configured, or its store has no value. `variable` is the variable of a model's key, or empty."""

    code = "no_credential"

    def __init__(self, text: str, *, variable: str = "") -> None:
        self.variable = variable
        super().__init__(text)


# Ledger


class LedgerError(NexusError):
    """Base of errors about stored history.

    Attributes:
        reply: A model's reply that could not be stored, as it was passed to `record`, or its messages if it waits since an
            earlier call; None for other errors. Its turn is still open: the same event continues it, and
            `turn.record(error.reply)` stores it without another call.
        kept_in: The file that has this reply until the ledger can store it; empty if only the error has it.
    """

    code = "ledger_error"
    reply: Any = None
    kept_in: str = ""

    def keep_reply(self, reply: object, kept_in: str) -> None:
        """Add a reply that could not be stored, and the file that has it, to the error and its text."""
        self.reply = reply
        self.kept_in = kept_in
        where = "reply saved in no file (record it again: `error.reply` has it)"
        if kept_in:
            where = (
                f"reply saved in '{kept_in}' (the next program that opens the ledger records it, and the same event is then "
                "answered from it)"
            )
        self.args = (f"{self}; {where}",)

    @property
    def leaves_turn_open(self) -> bool:
        """Return whether the turn that it stopped is still open, so that its event continues it."""
        return self.reply is not None


class LedgerUnusable(LedgerError):
    """The ledger is none, missing, closed, gone, of a newer version, or not trusted. It was not changed."""

    code = "ledger_unusable"


class LedgerDamaged(LedgerError):
    """Stored rows do not match their hash chain; they are reported, never skipped or returned."""

    code = "ledger_damaged"


class LedgerBusy(LedgerError):
    """Another process locked the ledger longer than the timeout. Nothing was written; try again."""

    code = "ledger_busy"


class LedgerFull(LedgerError):
    """The disk is full. The append is completely absent; earlier ones are safe."""

    code = "ledger_full"


class LedgerUnavailable(LedgerError):
    """The ledger's server cannot be reached. Nothing was stored by this call; try again.

    With the code `outcome_unknown` it went away while a write was committed: stored or not, as a whole; look before you
    repeat it.
    """

    code = "ledger_unavailable"

    @property
    def leaves_turn_open(self) -> bool:
        """Return True: nothing could end it."""
        return True


class IdempotencyConflict(LedgerError):
    """An idempotency key was used again with another payload or a new second key. Nothing was written."""

    code = "idempotency_conflict"

    def __init__(self, session: str, key: str, *, alike: bool, text: str = "") -> None:
        self.session = session
        self.key = key
        other = "another payload: this context was recorded with another reply, or the key is not unique"
        why = "the same payload, but without the second key" if alike else other
        advice = "(assemble again and record that; nothing was stored)"
        super().__init__(text or f"key {key!r} already used in session {session!r} for {why} {advice}")


class HeadMoved(LedgerError):
    """A session, or a document (`document_changed`), is not at the expected version. Nothing was written."""

    code = "head_moved"

    def __init__(self, session: str, expected: int, actual: int, *, text: str = "", code: str = "") -> None:
        self.session = session
        self.expected = expected
        self.actual = actual
        text = text or (
            f"session {session!r} changed: it is at entry {actual}, this was made for entry {expected} of its history "
            "(assemble again, then record; nothing was stored)"
        )
        super().__init__(text, code=code)


def session_moved(session: str, expected: int, actual: int) -> HeadMoved:
    """Return the error for a session that was renamed, rewound, archived or changed meanwhile."""
    text = (
        f"session {session!r} changed: it is at update {actual}, this was made for update {expected} (check it with "
        "`nexus session reflog`, then repeat; nothing was changed)"
    )
    return HeadMoved(session, expected, actual, text=text, code="session_moved")


def document_changed(kind: str, name: str, expected: int, actual: int) -> HeadMoved:
    """Return the error for a document that has another version than the expected one."""
    text = (
        f"{kind} {name!r} changed: it is at version {actual}, this was made for version {expected} (read it again, "
        "then change it; nothing was stored)"
    )
    return HeadMoved(name, expected, actual, text=text, code="document_changed")


class TurnSuperseded(LedgerError):
    """A turn has ended, or another program continues its session. Nothing was written to the session."""

    code = "turn_superseded"

    def __init__(self, session: str, turn: int, reason: str, stored: str = "nothing was stored") -> None:
        self.session = session
        self.turn = turn
        self.reason = reason
        what = f"turn {turn} of session {session!r}" if turn else f"session {session!r}"
        super().__init__(f"{what} cannot be continued: {reason} ({stored}; begin another turn)")


class LateReply(TurnSuperseded):
    """A reply came when its turn could no longer have it. It is stored apart, behind the message that it answers.

    Attributes:
        reply: The reply as it was passed to `record`.
        stored_as: Label of the session with the conversation up to this reply; empty if it could not be stored.
    """

    code = "late_reply"

    def __init__(
        self, cause: TurnSuperseded | HeadMoved | IdempotencyConflict, turn: int, reply: object, stored_as: str
    ) -> None:
        self.reply = reply
        self.stored_as = stored_as
        reason = "the session changed"
        if isinstance(cause, TurnSuperseded):
            reason = cause.reason
        elif isinstance(cause, IdempotencyConflict):
            reason = "another reply was recorded to the same context"
        where = f"the reply is in session {stored_as!r}" if stored_as else "the reply is not stored; this error has it"
        super().__init__(cause.session, turn, reason, where)

    @property
    def leaves_turn_open(self) -> bool:
        """Return False: it has ended, or another program continues it."""
        return False


class SessionBusy(LedgerError):
    """Another call of the session is under way and did not end in time. Nothing was written."""

    code = "session_busy"

    def __init__(self, session: str, holder: str, waited_s: float) -> None:
        self.session = session
        self.holder = holder
        self.waited_s = waited_s
        super().__init__(
            f"session {session!r} is in use by {holder or 'another call of this program'} and was not free after "
            f"{waited_s:g} s (wait longer: wait=…, or use another session; nothing was stored)"
        )


class CompactionSuperseded(LedgerError):
    """Another checkpoint landed after a compaction was planned. Nothing was stored; plan again."""

    code = "compaction_superseded"


class BadReference(LedgerError, ValueError):
    """A thread, turn, call, alias or position does not exist, does not fit, or leads back to itself. Nothing was stored."""

    code = "bad_reference"


class NoSuchSession(LedgerError):
    """No session has that label (`nexus sessions` lists them)."""

    code = "no_such_session"


class CannotReplay(LedgerError):
    """A recorded call cannot be reproduced; `missing` lists missing parts and differences."""

    code = "cannot_replay"

    def __init__(self, call: str, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"{call} cannot be reproduced: {'; '.join(missing)}")


# Bus


class BusError(NexusError):
    """Base of errors of the bus; also a dead letter that cannot be replayed."""

    code = "bus_error"


class BadBusMessage(BusError, ValueError):
    """A message or topic is invalid, too large or of a newer envelope, or a payload is not a message. Nothing was sent.

    With the code `bus_message_too_large` it has `size_bytes`, and the bus transports `max_bytes`; otherwise both are 0.
    """

    code = "bad_bus_message"
    size_bytes: int = 0
    max_bytes: int = 0


def bus_message_too_large(topic: str, size_bytes: int, max_bytes: int) -> BadBusMessage:
    """Return the error for a message that is larger than the bus transports."""
    error = BadBusMessage(
        f"message for {topic!r} too large: {size_bytes:,} bytes, the limit is {max_bytes:,} (store the content, for "
        "example in the ledger, and send a reference to it)",
        code="bus_message_too_large",
    )
    error.size_bytes = size_bytes
    error.max_bytes = max_bytes
    return error


class BusUnavailable(BusError):
    """The bus has no connection, was closed, or could not store a durable message. Publish again with the same key."""

    code = "bus_unavailable"


def bus_closed(text: str = "bus is closed (open another one)") -> BusUnavailable:
    """Return the error for a call of a bus that was closed."""
    return BusUnavailable(text, code="bus_closed")


class BusNoResponder(BusError):
    """A request's topic has no subscription. It is reported at once."""

    code = "bus_no_responder"

    def __init__(self, topic: str, text: str = "") -> None:
        self.topic = topic
        super().__init__(text or f"no subscription for {topic!r} (start the program that answers it)")


class BusDeadlineExceeded(BusError, TimeoutError):
    """A deadline passed before a message was sent or answered. The function may have run."""

    code = "bus_deadline_exceeded"


class BusRequestFailed(BusError):
    """The function that got a request raised: `kind` is the error's class name, `text` its message, `error_code` its code.

    `error_code` is empty for an error of another package. `details` are further values that the function added
    (`nexus.bus.port.error_reply`). Printed, it is the text of an error of Nexus, which is a sentence for people, and of
    another error its class too.
    """

    code = "bus_request_failed"

    def __init__(
        self, topic: str, kind: str, text: str, details: Mapping[str, Any] | None = None, *, error_code: str = ""
    ) -> None:
        self.topic = topic
        self.kind = kind
        self.text = text
        self.error_code = error_code
        self.details = dict(details or {})
        super().__init__(text if text and error_code else f"{kind}: {text}")
