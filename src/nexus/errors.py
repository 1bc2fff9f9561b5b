# Over 400 lines: one tree, drawn in its docstring; a class and a sentence for each thing that can go wrong.
"""Every error that Nexus raises, as one tree.

Each is named for what happened; its text says what happened and what to do, and nothing is lost when it is raised.

    NexusError
    ├── BudgetTooSmall          the parts that are never cut exceed the budget; nothing was sent
    ├── ContextOverflow         the provider refused the prompt as too large, and a smaller one does not help or exist
    ├── BadBudget               a budget or reserve that leaves nothing, or is no amount
    ├── BadModelEntry           the user's own facts about a model are impossible
    ├── BadCall                 a call to a simulated cache, or a sum about one, that cannot be
    ├── BadConfig               a configuration file has an unknown key or an impossible value, or cannot be read
    ├── OverCap                 a file is larger than its cap, and `caps = "error"` wants that refused
    ├── BadSetting              a strategy, clock, zone or encoding that there is not
    ├── BadEvent                an event of messages that are no results of tools
    ├── BadTool                 a tool definition without a name, or with parameters that are no schema
    ├── ToolCallFailed          a registered tool gave no result
    │   ├── UnknownTool         no tool of that name is registered
    │   └── BadArguments        the arguments are not what the tool takes; it was not called
    ├── BadFact                 a fact that memory does not take: empty, too long, or known already
    │   └── SecretFound         a text for memory looks as if it held a secret
    ├── NoSuchFact              no fact of memory is meant, or more than one; nothing was changed
    ├── MemoryBusy              another program held or changed the memory files all the time
    ├── EmptyEvent              the event holds nothing that the model could be shown
    ├── UnknownProfile          no profile of that name
    ├── BadProfile              a profile's file cannot be used, or says something that is no profile
    ├── BadPolicy               a policy file cannot be read, or says something that is no rule
    ├── BadSessionKey           a session key is none, or an agent of that role does not belong there
    ├── EmptyTask               a worker without a task
    ├── NotAllowed              the policy does not allow this role, session or toolset for who asks
    │   └── ToolNotAllowed      a call of a tool that was not offered with the context
    ├── UnknownFormat           a file's format was not recognised
    ├── UnreadableFile          a file cannot be read as what it should be
    │   └── BadTurnLog          a text is no JSON array of entries, so it is no turn log
    ├── BadImage                an image is not one that a provider accepts
    ├── BadReply                a reply has none of the known shapes
    ├── BadContext              a saved context, or a block of one, is damaged or of another version
    ├── BadSkill                a skill's file cannot be read, or a skill cannot be made, as the standard has it
    ├── NoSuchSkill             no skill of that name
    ├── WorkspaceMissing        the workspace folder is not there
    ├── PackageMissing          an optional package is needed and not installed
    ├── CredentialError         base of what can go wrong with credentials; no text of these has a value
    │   ├── BadCredential       a name or value that cannot be one; nothing was stored
    │   ├── NoCredential        nothing is configured under that name
    │   ├── CredentialsDamaged  the list of credentials cannot be read; it is left untouched
    │   ├── CredentialsNotSaved the list of credentials cannot be written, or another process is writing it
    │   └── KeyringUnusable     the system has no usable keyring, or it failed or did not answer
    ├── SummarizerFailed        a summariser gave no summary: the call failed, was refused, or cannot be read
    │   └── SummaryCallTooLarge its request and answer are more than one call takes
    └── LedgerError
        ├── LedgerDamaged       stored rows do not match their hashes; nothing is served from them
        ├── LedgerTooNew        the file was written by a newer version; it is left untouched
        ├── NotALedger          the file is not a Nexus ledger
        ├── LedgerBusy          another process holds the ledger
        ├── LedgerFull          the disk (or the file's size limit) is full; the append is absent
        ├── IdempotencyConflict the same key came with another payload
        ├── HeadMoved           the session got a newer entry than the caller expected
        │   └── SessionMoved    the session was renamed, rewound or changed meanwhile
        ├── CompactionSuperseded another compaction, undo or clear came while a summary was being made
        ├── BadEntry            an entry names positions that are not there
        ├── BadReference        a parent, thread or alias that is not there, or a circle of them
        ├── ForksDepend         something else continues what was to be deleted for good
        ├── EraseIncomplete     the storage still holds some of a text that was deleted for good
        ├── LedgerConflict      an import brings another row than the ledger has at that place
        ├── CannotReplay        a recorded call cannot be made again as it was sent, or not be proven
        ├── LedgerClosed        the ledger was closed, or belongs to the process that this one was forked from
        ├── LedgerGone          the ledger's file was moved, replaced or deleted while it was open
        └── NoSuchSession       no session of that label
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class NexusError(Exception):
    """Base of all errors of this package."""


class BudgetTooSmall(NexusError):
    """System, tools, current event, last group and pins alone exceed the budget (see docs/fitting.md)."""

    def __init__(self, available_tokens: int, needed_tokens: int, parts: Mapping[str, int]) -> None:
        self.available_tokens = available_tokens
        self.needed_tokens = needed_tokens
        self.parts = dict(parts)
        sizes = ", ".join(f"{name} {tokens:,}" for name, tokens in self.parts.items() if tokens)
        super().__init__(
            f"the parts that are never cut need {needed_tokens:,} tokens, the budget is {available_tokens:,} ({sizes}). "
            "Nothing was sent. Use a larger budget or model, or shorten the largest part."
        )

    def scaled(self, factor: float, available_tokens: int, kept_back: int) -> BudgetTooSmall:
        """The same in a provider's tokens, `factor` of them to a base token (rounded up)."""
        parts = {name: math.ceil(tokens * factor) for name, tokens in self.parts.items()}
        if kept_back:
            parts["rounding"] = kept_back
        return BudgetTooSmall(available_tokens, sum(parts.values()), parts)


class ContextOverflow(NexusError):
    """A call did not fit, and neither did its smaller retries; nothing was stored. `attempts` are the calls made."""

    def __init__(self, attempts: Iterable[Any], why: str) -> None:
        self.attempts = tuple(attempts)
        last = self.attempts[-1] if self.attempts else None
        sizes = ", ".join(f"{attempt.tokens:,}" for attempt in self.attempts)
        said = f" The provider said: {last.verdict.text}" if last is not None and last.verdict is not None else ""
        super().__init__(
            f"the context does not fit: {why} (tokens sent by our count: {sizes or 'none'}).{said} Nothing was stored. "
            "Use a model with a larger window, or make system prompt, tools or message smaller."
        )


class BadBudget(NexusError, ValueError):
    """A budget or reserve that is negative, zero, or leaves nothing of the window."""


class BadModelEntry(NexusError, ValueError):
    """The user's own entry for a model has an unknown field or an impossible value."""


class BadCall(NexusError, ValueError):
    """What is to be simulated or reckoned has negative tokens, a false order, or marks that the provider refuses."""


class BadConfig(NexusError, ValueError):
    """A configuration file cannot be used; `key` is empty where it cannot be read at all."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        super().__init__(f"{file}: {key}: {expected}" if key else f"{file}: {expected}")


class OverCap(NexusError):
    """A text is over its cap, in characters, and the configuration says that nothing may be left out."""

    def __init__(self, origin: str, chars: int, cap_chars: int) -> None:
        self.origin, self.chars, self.cap_chars = origin, chars, cap_chars
        super().__init__(
            f'{origin} has {chars:,} characters, the cap is {cap_chars:,}, and instructions.caps is "error": shorten it, '
            'raise the cap, or set caps to "report". Nothing was sent'
        )


class BadSetting(NexusError, ValueError):
    """A setting has none of its possible values; the text lists them."""


class BadEvent(NexusError, ValueError):
    """An event that is given as messages holds results of tools, and a user's message after them at most."""


class BadTool(NexusError, ValueError):
    """A tool definition is of none of the providers' forms."""


class ToolCallFailed(NexusError):
    """A tool gave no result: it raised an error (the `__cause__`), or there is nothing here that could be called."""


class UnknownTool(ToolCallFailed):
    """No tool of that name is registered; the text lists those that are."""


class BadArguments(ToolCallFailed, ValueError):
    """A call's arguments are no JSON object, or not what the tool takes. The tool was not called."""


class BadFact(NexusError, ValueError):
    """A text that memory does not take: empty, too long, known already. Nothing was written."""


class SecretFound(BadFact):
    """A text for memory looks as if it held a secret, of the kinds in `kinds`. Nothing was written."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.kinds = tuple(kinds)
        super().__init__(
            f"the text looks as if it held a secret ({', '.join(self.kinds)}), and memory goes to the model as it is: "
            "nothing was written. Leave it out, or force it (`--force`)"
        )


class NoSuchFact(NexusError, ValueError):
    """No fact is meant, or more than one: `numbers` has those that could be. Nothing was changed."""

    def __init__(self, text: str, numbers: Iterable[int] = ()) -> None:
        self.numbers = tuple(numbers)
        super().__init__(text)


class MemoryBusy(NexusError):
    """Another program held the memory files, or changed them all the time. Nothing was written; try again."""


class EmptyEvent(NexusError):
    """The event has no text, no image and no result of an open call."""


class UnknownProfile(NexusError):
    """No profile of that name; the text lists those that exist."""


class BadProfile(NexusError, ValueError):
    """A profile's file cannot be used: `file`, the `key` in it, and what was `expected` there."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        where = f"{file}: {key}" if key else file
        super().__init__(f"{where}: expected {expected}")


class BadPolicy(NexusError):
    """A policy cannot be used: `file`, the `key` in it, and what was `expected` there. No context is made meanwhile."""

    def __init__(self, file: str, key: str, expected: str) -> None:
        self.file, self.key, self.expected = file, key, expected
        where = f"{file}: {key}" if key else file
        super().__init__(f"{where}: expected {expected}. No context is made before the policy is mended")


class BadSessionKey(NexusError, ValueError):
    """A session's label has a known prefix and no name that can be one, or is of no session for that role."""


class EmptyTask(NexusError, ValueError):
    """A worker's prompt was asked for without a task."""


class NotAllowed(NexusError):
    """The policy does not allow the role, session or toolset that a call asks for. Nothing was made."""


class ToolNotAllowed(NotAllowed):
    """A tool that was not offered was called: `tool`, the `toolset` and `role` of the context, and `why`."""

    def __init__(self, tool: str, toolset: str, role: str, why: str) -> None:
        self.tool, self.toolset, self.role, self.why = tool, toolset, role, why
        applied = f"toolset {toolset!r}, role {role}" if toolset else f"role {role}"
        super().__init__(
            f"tool {tool!r} is not allowed ({applied}): {why}. Do not run it; answer the call with this error"
        )


class UnknownFormat(NexusError):
    """A session file's format was not recognised; `--format` forces one."""


class UnreadableFile(NexusError):
    """A file cannot be opened or holds nothing of its declared format."""


class BadTurnLog(UnreadableFile):
    """A text is no JSON array of entries, or is nested too deeply to be read; the text says where."""


class BadImage(NexusError):
    """An image is of a type, size or state that no provider accepts."""


class BadReply(NexusError):
    """A reply is neither a provider's response nor an AgentResult."""


class BadContext(NexusError):
    """A saved context, or a block of a tagged dialogue, cannot be read back."""


class BadSkill(NexusError):
    """A skill's file has no front matter that can be read, or a skill cannot be made. `line` is in the file, from 1."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.line = line
        super().__init__(text)


class NoSuchSkill(NexusError):
    """No skill of that name; `nexus skill list` lists them."""


class WorkspaceMissing(NexusError):
    """The workspace folder does not exist; `nexus init` makes one."""


class PackageMissing(NexusError, ImportError):
    """An optional package is needed and not installed; the text has the command that installs it."""

    def __init__(self, package: str, needed_by: str, extra: str) -> None:
        self.package = package
        super().__init__(
            f"{needed_by} needs the package {package}, which is not installed: pip install 'nexus-context-engine[{extra}]'"
        )


class CredentialError(NexusError):
    """Base of what can go wrong with credentials. A value stands in no text of these."""


class BadCredential(CredentialError, ValueError):
    """A name, a variable's name or a value that cannot be one. Nothing was stored."""


class NoCredential(CredentialError):
    """Nothing is configured under that name, or the place that is has no value."""


class CredentialsDamaged(CredentialError):
    """The list of credentials is no regular file or not in its form. It was not touched; values are elsewhere."""


class CredentialsNotSaved(CredentialError):
    """The list of credentials could not be written: another process is at it, the disk is full, or it is not allowed."""


class KeyringUnusable(CredentialError):
    """The system has no keyring that can be used, or it failed, or did not answer in time."""


class SummarizerFailed(NexusError):
    """A summariser gave no summary. What its provider's package raised is the `__cause__`."""


class SummaryCallTooLarge(SummarizerFailed):
    """A summariser's request with its answer is more than one call takes. Summarise fewer messages at once.

    Both numbers are 0 where a provider did not tell them.
    """

    def __init__(self, text: str, needed_tokens: int, limit_tokens: int) -> None:
        self.needed_tokens, self.limit_tokens = needed_tokens, limit_tokens
        super().__init__(text)


class LedgerError(NexusError):
    """Base of what can go wrong with stored history."""


class LedgerDamaged(LedgerError):
    """Stored rows do not match their hash chain: they are reported, never skipped or served."""


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer version of Nexus. It was not touched; upgrade Nexus."""


class NotALedger(LedgerError):
    """The file exists but is not a Nexus ledger. It was not touched."""


class LedgerBusy(LedgerError):
    """Another process held the ledger longer than the busy timeout. Nothing was written; try again."""


class LedgerFull(LedgerError):
    """No space left for the append. It is wholly absent; earlier appends are safe."""


class IdempotencyConflict(LedgerError):
    """An idempotency key was used again with another payload, or beside a new key. Nothing was written."""

    def __init__(self, session: str, key: str, *, alike: bool) -> None:
        self.session, self.key = session, key
        other = "something else: this context was recorded with another reply, or the key is not unique"
        why = "the same, without a key that came beside it now" if alike else other
        super().__init__(
            f"session {session!r} has already used the key {key!r} for {why}. Nothing was stored; assemble again and "
            "record that"
        )


class HeadMoved(LedgerError):
    """The session's head is not the expected one. Nothing was written; read again and retry."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        self.session, self.expected, self.actual = session, expected, actual
        super().__init__(
            f"session {session!r} is at entry {actual} and not where this was made for, entry {expected}, or its history "
            "is another one. Nothing was stored: assemble again, then record"
        )


class SessionMoved(HeadMoved):
    """The session's pointer was moved by somebody else: renamed, rewound, archived or changed. Nothing was written."""

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(session, expected, actual)
        text = (
            f"session {session!r} was moved meanwhile (it is at move {actual}, this was made for move {expected}). Nothing "
            "was changed: look at it again (`nexus session moves`), then repeat"
        )
        self.args = (text,)


class CompactionSuperseded(LedgerError):
    """Another mark came after the one that a compaction was planned after. Nothing was stored; plan again."""


class BadEntry(LedgerError, ValueError):
    """An entry to append names positions that do not fit the session. Nothing was stored."""


class BadReference(LedgerError, ValueError):
    """A session, thread, turn, call or alias that is named is not there, or leads back to itself. Nothing was stored."""


class ForksDepend(LedgerError):
    """Other sessions continue what was to be deleted for good; the text names them. Nothing was deleted."""


class EraseIncomplete(LedgerError):
    """Rows are deleted, but a search of the storage still found pieces of their text."""


class LedgerConflict(LedgerError):
    """An import has another row at a place that is taken. Nothing was stored."""


class CannotReplay(LedgerError):
    """A recorded call cannot be made again as it was sent; `missing` says what is not there, or how it differs."""

    def __init__(self, call: str, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(f"{call} cannot be made again as it was sent: {'; '.join(missing)}")


class LedgerClosed(LedgerError):
    """The ledger was closed, or was opened by the parent of this forked process. Open it again."""


class LedgerGone(LedgerError):
    """The file at the ledger's path is no longer the one that was opened. Nothing was written; open it again."""


class NoSuchSession(LedgerError):
    """No session has that label; `nexus sessions` lists them."""
