"""An agent engine that is another program: it gets the context and speaks JSON lines on standard input and output.

Nexus writes one line with the context, then results of calls that the program asked for:

    {"type": "run", "context": {…}, "request": {…}}
    {"type": "tool_result", "call_id": "c1", "content": "…", "is_error": false}
    {"type": "cancel"}

`context` is document 002's AssembledContext, `request` the body for the model's provider. The program writes events, each
complete message, and one `result` as its last line:

    {"type": "token", "text": "…"}
    {"type": "reasoning", "text": "…"}
    {"type": "tool_status", "call_id": "c1", "name": "bash", "status": "started"}
    {"type": "tool_call", "call_id": "c1", "name": "read_file", "arguments": {…}}
    {"type": "message", "message": {"role": "assistant", "content": "…", "tool_calls": […]}}
    {"type": "result", "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 3}, "error": null}

`tool_call` asks Nexus to run a tool of the context, by its policy; the program runs its own tools itself. Messages are of
chat completions, or of the API that `format` names beside them (`nexus.read_messages`), the results of all calls included. They are stored together at the end; the messages
of a program that fails or is canceled are stored with the failed turn.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from nexus.agents.engine import AgentTools, Limits
from nexus.agents.loop import CANCELED, until_canceled
from nexus.agents.tool_calls import text_of_result
from nexus.context import AssembledContext
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import AgentError, NexusError
from nexus.ledger.lease import shielded
from nexus.providers.errors.failures import failure_of
from nexus.providers.messages import read_messages
from nexus.text.as_received import ReceivedFormat
from nexus.types.decoding import decodable
from nexus.types.message import Message, ToolCall
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.stream_events import Reasoning, Sink, Token, ToolStatus

LINE_BYTES = 64_000_000
"""Longest line of a program."""

GRACE_S = 5.0
"""Seconds that a program has to end by itself after a cancel or its result."""

_ERROR_LINES = 20


class _RunCall(Struct, frozen=True, tag="tool_call"):
    call_id: str
    name: str
    arguments: dict[str, Any] = {}


class _NewMessage(Struct, frozen=True, tag="message"):
    message: dict[str, Any]
    format: ReceivedFormat = "openai"


class _Result(Struct, frozen=True, tag="result"):
    stop_reason: str = "end_turn"
    usage: TokenUsage = TokenUsage()
    error: str | None = None
    model: str = ""


_Line: TypeAlias = Token | Reasoning | ToolStatus | _RunCall | _NewMessage | _Result
_LINE = msgspec.json.Decoder(decodable(_Line))


class AgentProgram:
    """An `AgentEngine` that runs a program for each turn.

    Args:
        nx: The engine whose ledger has the turn.
        command: The program and its arguments; no shell.
        cwd: Its folder; by default the workspace.
        env: Its whole environment. By default PATH, HOME, LANG and TERM of this process, and so none of its secrets.
        limits: Limits of a turn; `seconds` applies.
    """

    def __init__(
        self,
        nx: AsyncEngine,
        command: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.nx = nx
        self.command = tuple(command)
        self.limits = limits or Limits()
        self.cwd = cwd
        names = ("PATH", "HOME", "LANG", "TERM", "SYSTEMROOT")
        if env is not None:
            self.env = dict(env)
        else:
            self.env = {name: os.environ[name] for name in names if name in os.environ}

    async def run(
        self, ctx: AssembledContext, tools: AgentTools, sink: Sink, cancel: asyncio.Event | None = None
    ) -> AgentResult:
        """Run a turn; see `AgentEngine.run`."""
        run = _ProgramRun(self, ctx, tools, sink)
        return await until_canceled(run.to_end(), cancel) or CANCELED


class _ProgramRun:
    """One turn under way."""

    def __init__(self, program: AgentProgram, ctx: AssembledContext, tools: AgentTools, sink: Sink) -> None:
        self._program = program
        self._ctx = ctx
        self._tools = tools
        self._sink = sink
        self._messages: list[_NewMessage] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)

    async def to_end(self) -> AgentResult:
        """Run the program. Its messages so far are stored with a turn that fails."""
        try:
            async with asyncio.timeout(self._program.limits.seconds):
                return await self._run()
        except asyncio.CancelledError:
            await shielded(self._fail("aborted", "canceled"))
            raise
        except Exception as error:  # noqa: BLE001 - a failed turn is a result (document 002)
            failure = failure_of(error)
            await self._fail(failure.kind, failure.text)
            stop_reason = "error"
            if failure.kind == "timeout":
                stop_reason = "timeout"
            return AgentResult((), stop_reason=stop_reason, error=failure.text, model=self._ctx.model)

    async def _fail(self, kind: Any, text: str) -> None:
        turn = self._program.nx.turn_of(self._ctx)
        messages: tuple[Message, ...] = ()
        with suppress(NexusError):  # a message that cannot be read is no reason to lose the failure itself
            messages = self._read_messages()
        await turn.fail_if_open(kind, text, partial=AgentResult(messages) if messages else None)

    async def _run(self) -> AgentResult:
        program = self._program
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=program.cwd or self._ctx.workspace_path or None,
                env=program.env,
                limit=LINE_BYTES,
            )
        except OSError as error:
            raise AgentError(
                f"program {program.command[0]!r} cannot be started: {error.strerror or error}",
                code="agent_program_failed",
            ) from error
        reading_errors = asyncio.ensure_future(self._read_errors(process))
        try:
            body = self._ctx.to_provider(self._ctx.accounting.model_info.provider_format)
            await self._write(process, {"type": "run", "context": self._ctx.to_json(), "request": body})
            return await self._read(process)
        except asyncio.CancelledError:
            with suppress(OSError):
                await self._write(process, {"type": "cancel"})
            raise
        finally:
            for task in self._calls:
                task.cancel()
            await shielded(_end(process))
            reading_errors.cancel()

    async def _read(self, process: asyncio.subprocess.Process) -> AgentResult:
        """Take the program's lines until its result."""
        assert process.stdout is not None
        while True:
            try:
                data = await process.stdout.readline()
            except ValueError as error:
                raise AgentError(
                    f"program wrote a line of over {LINE_BYTES:,} bytes", code="agent_program_failed"
                ) from error
            if not data:
                code = await process.wait()
                await asyncio.sleep(0)
                last = "\n".join(self._errors)
                raise AgentError(
                    f"program ended with code {code} before its result{': ' if last else ''}{last}",
                    code="agent_program_failed",
                )
            if not data.strip():
                continue
            try:
                line = _LINE.decode(data)
            except msgspec.MsgspecError as error:
                excerpt = data[:200].decode(errors="replace").strip()
                raise AgentError(
                    f"program wrote a line that is no event: {error}: {excerpt}", code="agent_program_failed"
                ) from error
            match line:
                case _RunCall():
                    task = asyncio.ensure_future(self._run_call(process, line))
                    self._calls.add(task)
                    task.add_done_callback(self._calls.discard)
                case _NewMessage():
                    self._messages.append(line)
                case _Result():
                    return self._result(line)
                case _:
                    self._sink(line)

    def _result(self, line: _Result) -> AgentResult:
        if line.error is not None:
            raise AgentError(line.error, code="agent_program_failed")
        return AgentResult(self._read_messages(), line.usage, line.stop_reason, None, line.model or self._ctx.model)

    def _read_messages(self) -> tuple[Message, ...]:
        lines = self._messages
        model = self._ctx.model
        return tuple(message for line in lines for message in read_messages([line.message], line.format, model=model))

    async def _run_call(self, process: asyncio.subprocess.Process, line: _RunCall) -> None:
        """Run a tool of the context for the program."""
        call = ToolCall(line.call_id, line.name, json.dumps(line.arguments))
        self._sink(ToolStatus(call.id, call.name, "started", call.arguments[:200]))
        result = await self._tools.run(call, self._ctx)
        text = text_of_result(result)
        self._sink(ToolStatus(call.id, call.name, "failed" if result.is_error else "completed", text[:200]))
        answer = {"type": "tool_result", "call_id": call.id, "content": text, "is_error": result.is_error}
        with suppress(OSError):  # a program that ended is reported where its lines are read
            await self._write(process, answer)

    async def _write(self, process: asyncio.subprocess.Process, line: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(line) + b"\n")
        with suppress(ConnectionError):  # as above
            await process.stdin.drain()

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last lines of standard error, for the error of a program that fails."""
        assert process.stderr is not None
        with suppress(ValueError):
            async for data in process.stderr:
                self._errors.append(data.decode(errors="replace").rstrip()[:500])


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program: by closing its input, then by a signal, then by force."""
    if process.stdin is not None:
        process.stdin.close()
    for stop in (lambda: None, process.terminate, process.kill):
        with suppress(ProcessLookupError):
            stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_S)
            return
