"""Image of `nexus wrap claude` for the docs: the real client for three prompts, with a scripted model on loopback.

`make picture` calls it after `make clients` has installed the client; without it the image stays as it is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from build_pictures import PICTURES, run_in_terminal, write_svg

from clients.installation import PROGRAMS, is_installed
from clients.programs import CLIENTS, Home, environment_of
from clients.scripted_agent import NOTES, TURNS, ScriptedAgent, note_text, prompt
from nexus.testing.model_server import ModelRequest, model_server

BUDGET = 22_000
NOTE_CHARS = 12_000
BYTES_PER_TOKEN = 4


class PrefixCache:
    """The usage that a provider with a prompt cache reports: what begins like the last request is read from it."""

    def __init__(self) -> None:
        self._last = b""

    def usage(self, request: ModelRequest) -> dict[str, int]:
        """Return the tokens of a request, by its bytes."""
        prompt = json.dumps([request.body.get("tools"), request.body.get("system"), request.body["messages"]])
        data = prompt.replace(', "cache_control": {"type": "ephemeral"}', "").encode()
        same = os.path.commonprefix([data, self._last])  # noqa: RUF071 - bytes, no paths
        self._last = data
        tokens = len(data) // BYTES_PER_TOKEN
        read = len(same) // BYTES_PER_TOKEN
        return {"input_tokens": tokens, "cache_read_tokens": read, "cache_write_tokens": tokens - read}


def main() -> int:
    """Write the image. Returns 1 if a command failed."""
    if not is_installed():
        print("docs/pictures/wrap.svg stays as it is: the clients are not installed (make clients)")
        return 0
    client = next(client for client in CLIENTS if client.name == "claude")
    texts: list[str] = []
    failed = 0
    with TemporaryDirectory() as folder, model_server(ScriptedAgent(client, PrefixCache().usage)) as provider:
        home = Home(Path(folder) / "home", provider.anthropic_url)
        variables = environment_of(client, home)
        # The client is where a user has it: on the search path, and `nexus wrap` says where the model is.
        programs = Path(folder) / "bin"
        programs.mkdir()
        (programs / "claude").symlink_to(PROGRAMS["claude"])
        variables["PATH"] = f"{programs}:{Path(sys.executable).parent}:{variables['PATH']}"
        variables["TERM"] = "xterm-256color"
        variables["NEXUS_HOME"] = str(home.path / ".nexus")
        for name in (name for names in NOTES.values() for name in names):
            home.write(f"work/{name}", note_text(name, NOTE_CHARS))
        for turn in range(TURNS):
            wrapped = ["nexus", "wrap", "claude"]
            if turn == TURNS - 1:
                wrapped[2:2] = ["--budget", str(BUDGET)]
            command = [*wrapped, *client.arguments(home, turn > 0), prompt(turn)]
            shown = [*wrapped, *["--continue"] * (turn > 0), "-p", prompt(turn)]
            code, output = run_in_terminal(command, home.work, home.path, variables)
            failed |= code
            line = " ".join(f'"{word}"' if " " in word else word for word in shown)
            texts.append(f"\x1b[1m$ {line}\x1b[0m\n{output.replace(str(home.path), '~').rstrip()}")
    write_svg(PICTURES / "wrap.svg", "nexus wrap claude", "\n\n".join(texts))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
