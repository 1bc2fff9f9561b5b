"""Command lines and settings of six clients: no account, no telemetry, one home folder for each.

A client that calls another host reaches the scripted server as its proxy, which refuses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clients.installation import PROGRAMS
from nexus.testing.scripted_replies import Format

TURN_TIMEOUT_S = 60


@dataclass(frozen=True)
class Home:
    """Folders of one client, and the server that it talks to."""

    path: Path
    url: str

    @property
    def work(self) -> Path:
        """Folder that the client works in."""
        return self.path / "work"

    def write(self, name: str, text: str) -> Path:
        """Write a file, by its path in the home folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@dataclass(frozen=True)
class Client:
    """A client: how it is set up and started."""

    name: str
    format: Format
    arguments: Callable[[Home, bool], list[str]]
    """Arguments before the prompt; the flag is true if it continues its last conversation."""
    set_up: Callable[[Home], dict[str, str]]
    """Writes its settings and returns further variables of its environment."""
    tool: str = ""
    """Tool that runs commands, or reads a note; empty if the client has none."""
    side_models: tuple[str, ...] = ()
    """Models that it asks beside the conversation, by a part of their name."""

    def start_turn(
        self, home: Home, environment: dict[str, str], prompt: str, *, is_first: bool
    ) -> subprocess.Popen[str]:
        """Start the process of one turn."""
        command = [str(PROGRAMS[self.name]), *self.arguments(home, not is_first), prompt]
        return subprocess.Popen(
            command, cwd=home.work, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run_turn(self, home: Home, environment: dict[str, str], prompt: str, *, is_first: bool) -> str:
        """Run one turn and return what the client printed. Raises AssertionError if it fails."""
        with self.start_turn(home, environment, prompt, is_first=is_first) as running:
            return self.end_turn(running)

    def end_turn(self, running: subprocess.Popen[str], timeout_s: float = TURN_TIMEOUT_S) -> str:
        """Wait for the end of a turn and return what the client printed. Raises AssertionError if it failed."""
        try:
            printed, errors = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            stop(running)
            raise AssertionError(f"{self.name} did not end within {timeout_s} seconds") from None
        assert not running.returncode, f"{self.name} ended with {running.returncode}: {printed[-400:]} {errors[-400:]}"
        return printed


def stop(running: subprocess.Popen[str]) -> None:
    """Kill a client with the programs that it started."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def environment_of(client: Client, home: Home) -> dict[str, str]:
    """Return a client's whole environment; nothing of the caller's but the search path."""
    home.work.mkdir(parents=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.path),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "DO_NOT_TRACK": "1",
        "HTTPS_PROXY": home.url,
        "HTTP_PROXY": home.url,
        "NO_PROXY": "127.0.0.1,localhost",
        **client.set_up(home),
    }


def _claude(home: Home) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": home.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex_arguments(home: Home, continues: bool) -> list[str]:
    provider = f'{{name="loop",base_url="{home.url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    settings = {
        "model_provider": "loop",
        "model_providers.loop": provider,
        "analytics.enabled": "false",
        "check_for_update_on_startup": "false",
    }
    overrides = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    resume = ["resume", "--last"] if continues else []
    return ["exec", *resume, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *overrides]


def _opencode(home: Home) -> dict[str, str]:
    model = {"name": "scripted", "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loop",
        "options": {"baseURL": f"{home.url}/v1", "apiKey": "none"},
        "models": {"scripted": model, "scripted-small": {**model, "name": "scripted-small"}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "loop/scripted",
        "small_model": "loop/scripted-small",
        "provider": {"loop": provider},
        "permission": {"*": "allow"},
    }
    home.write("work/opencode.json", json.dumps(settings))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _gemini(home: Home) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    home.write(".gemini/settings.json", json.dumps(settings))
    return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": home.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def _aider(home: Home) -> dict[str, str]:
    return {"OPENAI_API_BASE": f"{home.url}/v1", "OPENAI_API_KEY": "none"}


_AIDER_ARGUMENTS = [
    *("--model", "openai/gpt-4o", "--no-git", "--yes-always", "--no-pretty", "--restore-chat-history"),
    *("--analytics-disable", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes"),
    *("--no-suggest-shell-commands", "note-0.txt", "--message"),
]

_LLM_TOOLS = '''
def read_note(name: str) -> str:
    """Read a note by its file name."""
    return open(name).read()
'''


def _llm(home: Home) -> dict[str, str]:
    model = f"- model_id: scripted\n  model_name: scripted\n  api_base: {home.url}/v1\n  supports_tools: true\n"
    home.write("llm/extra-openai-models.yaml", model)
    home.write("llm/tools.py", _LLM_TOOLS)
    return {"OPENAI_API_KEY": "none", "LLM_USER_PATH": str(home.path / "llm")}


CLIENTS = (
    Client(
        "claude",
        "anthropic",
        lambda _, continues: [*(["-c"] if continues else []), "--allowedTools=Bash", "-p"],
        _claude,
        tool="Bash",
    ),
    Client("codex", "responses", _codex_arguments, lambda _: {"OPENAI_API_KEY": "none"}, tool="exec"),
    Client(
        "opencode",
        "openai",
        lambda _, continues: ["run", *(["-c"] if continues else [])],
        _opencode,
        tool="bash",
        side_models=("small",),
    ),
    Client(
        "gemini",
        "gemini",
        lambda _, continues: ["--approval-mode", "yolo", *(["--resume", "latest"] if continues else []), "-p"],
        _gemini,
        tool="run_shell_command",
        side_models=("lite",),
    ),
    Client("aider", "openai", lambda *_: _AIDER_ARGUMENTS, _aider),
    Client(
        "llm",
        "openai",
        lambda home, continues: [
            *(["-c"] if continues else []),
            *("-m", "scripted", "--chain-limit", "0", "--functions", str(home.path / "llm" / "tools.py")),
        ],
        _llm,
        tool="read_note",
    ),
)
