# Over 600 lines: one class for each error, in one tree.
"""The error tree: each class is named for what happened; its message adds what to do.

NexusError
├── ToolCallFailed
│   └── UnknownTool, BadArguments
├── NotAllowed
│   └── ToolNotAllowed
├── UnreadableFile
│   └── BadTurnLog
├── BadFact
│   └── SecretFound
├── CredentialError
│   └── BadCredential, NoCredential, CredentialsDamaged, CredentialsNotSaved, KeyringUnusable
├── SummarizerFailed
│   └── SummaryCallTooLarge
├── BadSetting
│   └── UnknownArgument
├── BadReply
│   └── IncompleteStream
├── ModelCallFailed, LocalServerFailed
├── NotAccepted
│   └── AmbiguousEvent
├── BusError
│   ├── BadBusMessage
│   │   └── BusMessageTooLarge, BusMessageTooNew
│   ├── BusUnavailable
│   │   └── BusClosed
│   └── BusNoResponder, BusDeadlineExceeded, BusRequestFailed
├── LedgerError
│   ├── HeadMoved
│   │   └── SessionMoved, DocumentChanged
│   ├── LedgerUnavailable
│   │   └── OutcomeUnknown
│   ├── TurnSuperseded
│   │   └── LateReply
│   └── LedgerDamaged, LedgerMissing, LedgerTooNew, NotALedger, LedgerBusy, LedgerFull, LedgerClosed,
│       LedgerGone, LedgerNotTrusted, SessionBusy, IdempotencyConflict, CompactionSuperseded, BadEntry, BadReference,
│       NoSuchSession, ForksDepend, EraseIncomplete, LedgerConflict, CannotReplay
└── BudgetTooSmall, ContextOverflow, LimitReached, AgentProgramFailed, BadBudget, BadModelEntry,
    AgentClosed, NoSuchAgent, ServerCallFailed, BadCall, EmptyEvent, BadEvent, BadContext,
    PackageMissing, BadTool, BadPolicy, UnknownProfile, BadProfile, BadSessionKey, EmptyTask,
    WorkspaceMissing, BadConfig, OverCap, UnknownFormat, BadImage, BadSkill, NoSuchSkill,
    NoSuchFact, MemoryBusy, NotEditable
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class NexusError(Exception):
    """Base of all errors of this package."""


# Calls, tokens and providers


class BudgetTooSmall(NexusError):
    """The parts that are never cut exceed the budget (docs/fitting.md). Nothing was sent.

    `is_lower_bound` is true if a message was so large that the other parts were not counted.
    """

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


class LimitReached(NexusError):
    """A limit of an agent's turn was reached (`nexus.agents.Limits`). Everything up to there is stored."""


class AgentClosed(NexusError):
    """An agent was destroyed, or its pool closed. Nothing was stored."""


class NoSuchAgent(NexusError):
    """The server has no agent of that id, or the token's tenant has none."""


class ServerCallFailed(NexusError):
    """A client of the server got an error: `kind` is its class name, `code` JSON-RPC's, `status` HTTP's (0: no answer)."""

    def __init__(self, text: str, *, kind: str = "", code: int = 0, status: int = 0) -> None:
        self.kind, self.code, self.status = kind, code, status
        super().__init__(text)


class AgentProgramFailed(NexusError):
    """A program that runs turns (`nexus.agents.AgentProgram`) failed. What it had said is stored with the turn."""


class NotAccepted(NexusError):
    """A broker did not accept or does not know an event, or a watcher missed events."""


class AmbiguousEvent(NotAccepted):
    """Several sessions or senders used an event's id. `candidates` has the session and principal of each."""

    def __init__(self, event_id: str, candidates: Iterable[tuple[str, str]]) -> None:
        self.event_id, self.candidates = event_id, tuple(candidates)
        names = "; ".join(
            f"session {session!r}{f', principal {principal!r}' if principal else ''}"
            for session, principal in self.candidates
        )
        super().__init__(f"event id {event_id[:80]!r} was used {len(self.candidates)} times: {names} (say which one)")


class ContextOverflow(NexusError):
    """A call and its smaller retries (`attempts`) did not fit. No reply was stored."""

    def __init__(self, attempts: Iterable[Any], why: str) -> None:
        self.attempts = tuple(attempts)
        last = self.attempts[-1] if self.attempts else None
        sizes = "; ".join(f"{attempt.tokens:,}" for attempt in self.attempts)
        answer = f". The last error: {last.verdict.text}" if last is not None and last.verdict is not None else ""
        super().__init__(
            f"context too large: {why}. Tokens of all calls, by our count: {sizes or 'none'}{answer} (use a model with a larger "
            "window, or shorten system prompt, tools or message; no reply was stored)"
        )


class BadBudget(NexusError, ValueError):
    """A budget or reserve is negative, zero, or takes the whole window."""


class BadModelEntry(NexusError, ValueError):
    """The user's entry for a model has an unknown field or an impossible value."""


class BadCall(NexusError, ValueError):
    """A call for the cache simulation has negative tokens, a wrong order, or breakpoints that the provider rejects."""


class EmptyEvent(NexusError):
    """The event has no text, image, attachment or result of an open call."""


class BadEvent(NexusError, ValueError):
    """An event is none, has a field of a wrong type, or messages that are unreadable or not tool results and a user's."""


class BadReply(NexusError):
    """A reply is neither a provider's response nor a valid AgentResult."""


class IncompleteStream(BadReply):
    """A stream broke off before the end of the reply; the same call may succeed."""


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

    def __init__(
        self,
        text: str,
        failure_kind: str,
        *,
        retryable: bool = False,
        status: int = 0,
        retry_after_s: float | None = None,
        reply: Any = None,
    ) -> None:
        self.failure_kind, self.kind = failure_kind, MODEL_CALL_KINDS.get(failure_kind, "unknown")
        self.retryable, self.status, self.retry_after_s, self.reply = retryable, status, retry_after_s, reply
        super().__init__(text)


class LocalServerFailed(NexusError):
    """The server of a local model did not start; the message has the end of its output."""


class BadContext(NexusError):
    """A saved context, or a block that Nexus wrote, is damaged or of another version."""


def install_command(extra: str) -> str:
    """Return the command that installs an extra. Until a release it runs in a clone of the repository."""
    return f"in a clone of Nexus: pip install '.[{extra}]'"


class PackageMissing(NexusError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""

    def __init__(self, package: str, needed_by: str, extra: str = "", *, command: str = "") -> None:
        self.package = package
        command = command or install_command(extra)
        super().__init__(f"package '{package}' not installed: {needed_by} needs it ({command})")


# Tools


class BadTool(NexusError, ValueError):
    """A tool definition is in none of the providers' formats, its schema is invalid, or it has no JSON form."""


class ToolCallFailed(NexusError):
    """A tool gave no result: it raised an error (the `__cause__`), or cannot be called."""


class UnknownTool(ToolCallFailed):
    """No tool of that name is registered; the message lists those that are."""


class BadArguments(ToolCallFailed, ValueError):
    """A call's arguments are not a JSON object or not the tool's. The tool was not called."""


# Policy, profiles and sessions


class BadPolicy(NexusError):
    """A policy file is invalid: its `key` and the `expected` value. No context is made until it is fixed."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        where = f"{file}: {key}" if key else file
        super().__init__(f"{where}: expected {expected} (no context is made until the policy is fixed)")


class NotAllowed(NexusError):
    """The policy denies the role, session or toolset of a call. Nothing was made."""


class ToolNotAllowed(NotAllowed):
    """A denied tool was called: `tool`, the `toolset` and `role` of the context, and the `reason`."""

    def __init__(self, tool: str, toolset: str, role: str, reason: str) -> None:
        self.tool, self.toolset, self.role, self.reason = tool, toolset, role, reason
        applied = f"toolset {toolset!r}, role {role}" if toolset else f"role {role}"
        super().__init__(
            f"tool {tool!r} is not allowed ({applied}): {reason}. Do not run it; answer the call with this error"
        )


class UnknownProfile(NexusError):
    """No profile has that name; the message lists those that exist."""


class BadProfile(NexusError, ValueError):
    """A profile file is invalid: its `key` and the `expected` value."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        where = f"{file}: {key}" if key else file
        super().__init__(f"{where}: expected {expected}")


class BadSessionKey(NexusError, ValueError):
    """A session label has a known prefix and an invalid name, or does not admit the role."""


class EmptyTask(NexusError, ValueError):
    """A worker has no task."""


# Workspace: configuration, files, skills, memory


class WorkspaceMissing(NexusError):
    """The workspace folder does not exist (`nexus init` creates one)."""


class BadConfig(NexusError, ValueError):
    """A configuration file is invalid; `key` is empty if it cannot be read at all."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        super().__init__(f"{file}: {key}: {expected}" if key else f"{file}: {expected}")


class BadSetting(NexusError, ValueError):
    """An argument or setting has a wrong type or is not one of its possible values."""


class NotEditable(NexusError):
    """The configuration does not let users change a prompt. Nothing was stored."""


class UnknownArgument(BadSetting, TypeError):
    """A function has no argument of that name; the message names the nearest one."""


class OverCap(NexusError):
    """A text is over its cap, in characters, and the configuration forbids truncation."""

    def __init__(self, origin: str, chars: int, cap_chars: int) -> None:
        self.origin, self.chars, self.cap_chars = origin, chars, cap_chars
        super().__init__(
            f"{origin} too long: {chars:,} characters, the cap is {cap_chars:,}, and instructions.caps is 'error' "
            "(shorten it, raise the cap, or set caps to 'report'; nothing was sent)"
        )


class UnknownFormat(NexusError):
    """A session file's format was not recognized; `--format` forces one."""


class UnreadableFile(NexusError):
    """A file cannot be opened or is not in its declared format."""


class BadTurnLog(UnreadableFile):
    """A turn log is not a JSON array of entries, or is nested too deeply; the message names the position."""


class BadImage(NexusError):
    """An image has a type, size or content that no provider accepts."""


class BadSkill(NexusError):
    """A skill file is invalid, or a skill cannot be created; `line` counts from 1."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.line = line
        super().__init__(text)


class NoSuchSkill(NexusError):
    """No skill has that name (`nexus skill list` lists them)."""


class BadFact(NexusError, ValueError):
    """A text for memory is empty, too long or a duplicate. Nothing was written."""


class SecretFound(BadFact):
    """A text for memory seems to contain secrets, of the kinds in `kinds`. Nothing was written."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.kinds = tuple(kinds)
        super().__init__(
            f"text seems to contain a secret: {', '.join(self.kinds)}; memory is sent to the model unchanged (remove it, or "
            "store it anyway: --force; nothing was written)"
        )


class NoSuchFact(NexusError, ValueError):
    """No fact, proposal or change matches, or several facts do (`numbers`). Nothing was changed."""

    def __init__(self, text: str, numbers: Iterable[int] = ()) -> None:
        self.numbers = tuple(numbers)
        super().__init__(text)


class MemoryBusy(NexusError):
    """Another program locked or kept changing the memory files. Nothing was written; try again."""


# Credentials


class CredentialError(NexusError):
    """Base of errors about credentials; their messages never contain a value."""


class BadCredential(CredentialError, ValueError):
    """A credential's name, variable or value is invalid. Nothing was stored."""


class NoCredential(CredentialError):
    """A credential is not configured, or its store has no value. `variable` is the variable of a model's key, or empty."""

    def __init__(self, text: str, *, variable: str = "") -> None:
        self.variable = variable
        super().__init__(text)


class CredentialsDamaged(CredentialError):
    """The list of credentials is damaged. It was not changed; values are stored elsewhere."""


class CredentialsNotSaved(CredentialError):
    """The list of credentials could not be written: lock, full disk or permissions."""


class KeyringUnusable(CredentialError):
    """The system has no usable keyring, or it failed or timed out."""


# Summarizers


class SummarizerFailed(NexusError):
    """A summarizer gave no summary; the provider's error is the `__cause__`."""


class SummaryCallTooLarge(SummarizerFailed):
    """A summarizer's request and answer exceed one call; both numbers are 0 if the provider did not report them."""

    def __init__(self, text: str, needed_tokens: int, limit_tokens: int) -> None:
        self.needed_tokens, self.limit_tokens = needed_tokens, limit_tokens
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

    reply: Any = None
    kept_in: str = ""

    def keep_reply(self, reply: object, kept_in: str) -> None:
        """Add a reply that could not be stored, and the file that has it, to the error and its text."""
        self.reply, self.kept_in = reply, kept_in
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


class LedgerDamaged(LedgerError):
    """Stored rows do not match their hash chain; they are reported, never skipped or returned."""


class LedgerMissing(LedgerError):
    """The PostgreSQL database has no ledger, and the program may not make one."""


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer version of Nexus. It was not changed."""


class NotALedger(LedgerError):
    """The file is not a Nexus ledger. It was not changed."""


class LedgerBusy(LedgerError):
    """Another process locked the ledger longer than the timeout. Nothing was written; try again."""


class LedgerFull(LedgerError):
    """The disk is full. The append is completely absent; earlier ones are safe."""


class LedgerUnavailable(LedgerError):
    """The ledger's server cannot be reached. Nothing was stored by this call; try again."""

    @property
    def leaves_turn_open(self) -> bool:
        """Return True: nothing could end it."""
        return True


class OutcomeUnknown(LedgerUnavailable):
    """The server went away while a write was committed. It is stored or not, as a whole; look before you repeat it."""


class LedgerClosed(LedgerError):
    """The ledger was closed, or opened by the parent of this forked process."""


class LedgerGone(LedgerError):
    """The file at the ledger's path was replaced. Nothing was written; open it again."""


class LedgerNotTrusted(LedgerError):
    """The ledger came with its folder, or a link leads to it. It is read-only, and no model gets its content."""


class IdempotencyConflict(LedgerError):
    """An idempotency key was used again with another payload or a new second key. Nothing was written."""

    def __init__(self, session: str, key: str, *, alike: bool, text: str = "") -> None:
        self.session, self.key = session, key
        other = "another payload: this context was recorded with another reply, or the key is not unique"
        why = "the same payload, but without the second key" if alike else other
        advice = "(assemble again and record that; nothing was stored)"
        super().__init__(text or f"key {key!r} already used in session {session!r} for {why} {advice}")


class HeadMoved(LedgerError):
    """The session's head is not the expected one. Nothing was written."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        self.session, self.expected, self.actual = session, expected, actual
        super().__init__(
            f"session {session!r} changed: it is at entry {actual}, this was made for entry {expected} of its history "
            "(assemble again, then record; nothing was stored)"
        )


class TurnSuperseded(LedgerError):
    """A turn has ended, or another program continues its session. Nothing was written to the session."""

    def __init__(self, session: str, turn: int, reason: str, stored: str = "nothing was stored") -> None:
        self.session, self.turn, self.reason = session, turn, reason
        what = f"turn {turn} of session {session!r}" if turn else f"session {session!r}"
        super().__init__(f"{what} cannot be continued: {reason} ({stored}; begin another turn)")


class LateReply(TurnSuperseded):
    """A reply came when its turn could no longer have it. It is stored apart, behind the message that it answers.

    Attributes:
        reply: The reply as it was passed to `record`.
        stored_as: Label of the session with the conversation up to this reply; empty if it could not be stored.
    """

    def __init__(
        self, cause: TurnSuperseded | HeadMoved | IdempotencyConflict, turn: int, reply: object, stored_as: str
    ) -> None:
        self.reply, self.stored_as = reply, stored_as
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

    def __init__(self, session: str, holder: str, waited_s: float) -> None:
        self.session, self.holder, self.waited_s = session, holder, waited_s
        super().__init__(
            f"session {session!r} is in use by {holder or 'another call of this program'} and was not free after "
            f"{waited_s:g} s (wait longer: wait=…, or use another session; nothing was stored)"
        )


class SessionMoved(HeadMoved):
    """The session was renamed, rewound, archived or changed meanwhile. Nothing was written."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(session, expected, actual)
        text = (
            f"session {session!r} changed: it is at update {actual}, this was made for update {expected} (check it with "
            "`nexus session reflog`, then repeat; nothing was changed)"
        )
        self.args = (text,)


class DocumentChanged(HeadMoved):
    """A document has another version than the expected one. Nothing was written."""

    def __init__(self, kind: str, name: str, expected: int, actual: int) -> None:
        super().__init__(name, expected, actual)
        text = (
            f"{kind} {name!r} changed: it is at version {actual}, this was made for version {expected} (read it again, "
            "then change it; nothing was stored)"
        )
        self.args = (text,)


class CompactionSuperseded(LedgerError):
    """Another checkpoint landed after a compaction was planned. Nothing was stored; plan again."""


class BadEntry(LedgerError, ValueError):
    """An entry refers to positions that do not fit the session. Nothing was stored."""


class BadReference(LedgerError, ValueError):
    """A session, thread, turn, call or alias does not exist or leads back to itself. Nothing was stored."""


class NoSuchSession(LedgerError):
    """No session has that label (`nexus sessions` lists them)."""


class ForksDepend(LedgerError):
    """Other sessions continue the history to be deleted; the message lists them. Nothing was deleted."""


class EraseIncomplete(LedgerError):
    """Rows were deleted, but the storage still contains pieces of their text."""


class LedgerConflict(LedgerError):
    """An import has a different row at an occupied position. Nothing was stored."""


class CannotReplay(LedgerError):
    """A recorded call cannot be reproduced; `missing` lists missing parts and differences."""

    def __init__(self, call: str, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"{call} cannot be reproduced: {'; '.join(missing)}")


# Bus


class BusError(NexusError):
    """Base of errors of the bus; also a dead letter that cannot be replayed."""


class BadBusMessage(BusError, ValueError):
    """A message or topic is invalid, or a payload is not a message. Nothing was sent."""


class BusMessageTooLarge(BadBusMessage):
    """A message is larger than the bus transports. Nothing was sent."""

    def __init__(self, topic: str, size_bytes: int, max_bytes: int) -> None:
        self.size_bytes, self.max_bytes = size_bytes, max_bytes
        super().__init__(
            f"message for {topic!r} too large: {size_bytes:,} bytes, the limit is {max_bytes:,} (store the content, for "
            "example in the ledger, and send a reference to it)"
        )


class BusMessageTooNew(BadBusMessage):
    """A message has a newer major version of the envelope. No function got it."""

    def __init__(self, version: str, newest: str) -> None:
        self.version = version
        super().__init__(f"message has envelope version {version}, this program reads up to {newest} (update Nexus)")


class BusUnavailable(BusError):
    """The bus has no connection, or could not store a durable message. Publishing again is safe with the same key."""


class BusClosed(BusUnavailable):
    """The bus was closed."""

    def __init__(self, text: str = "bus is closed (open another one)") -> None:
        super().__init__(text)


class BusNoResponder(BusError):
    """A request's topic has no subscription. It is reported at once."""

    def __init__(self, topic: str, text: str = "") -> None:
        self.topic = topic
        super().__init__(text or f"no subscription for {topic!r} (start the program that answers it)")


class BusDeadlineExceeded(BusError, TimeoutError):
    """A deadline passed before a message was sent or answered. The function may have run."""


class BusRequestFailed(BusError):
    """The function that got a request raised: `kind` is the error's class name, `text` its message.

    `details` are further values that the function added (`nexus.bus.port.error_reply`). Printed, it is the text of an error
    of Nexus, which is a sentence for people, and of another error its class too.
    """

    def __init__(self, topic: str, kind: str, text: str, details: Mapping[str, Any] | None = None) -> None:
        self.topic, self.kind, self.text, self.details = topic, kind, text, dict(details or {})
        super().__init__(text if text and kind in globals() else f"{kind}: {text}")
