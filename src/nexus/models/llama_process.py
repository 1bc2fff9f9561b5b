"""Process of llama.cpp's server: `python -m nexus.models.llama_process SETTINGS`.

It prints the server's address, and ends when its standard input is closed: with the program that started it, however that
ends. A crash of the server is one of this process alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec import Struct, json


class LlamaSettings(Struct, frozen=True):
    """Settings of one server."""

    weights: str
    model: str
    window_tokens: int
    n_parallel: int
    threads: int
    chat_template: str = ""
    reply_tokens: int = -1
    """Longest reply of a request without a limit; -1 for the rest of the window."""


def serve(settings: LlamaSettings) -> None:
    """Serve until standard input is closed."""
    import xllamacpp  # pyright: ignore[reportMissingImports] - a large package, not installed everywhere

    llama: Any = xllamacpp
    params = llama.CommonParams()
    params.model.path = settings.weights
    params.model_alias = {settings.model}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    # The window is shared between the requests that run at the same time.
    params.n_ctx = settings.window_tokens * settings.n_parallel
    params.n_parallel = settings.n_parallel
    params.n_predict = settings.reply_tokens
    params.cache_ram_mib = 0  # usage names cached tokens of the slot alone
    params.ui = False
    params.verbosity = 0
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = settings.threads
        threads.poll = 0  # idle threads sleep
    if settings.chat_template:
        params.use_jinja = True
        params.chat_template = settings.chat_template
    server = llama.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - read by the program that started this one
    sys.stdin.buffer.read()
    os._exit(0)  # without waiting for requests


if __name__ == "__main__":
    serve(json.decode(sys.argv[1], type=LlamaSettings))
