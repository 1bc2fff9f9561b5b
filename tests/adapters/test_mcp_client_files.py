"""`nexus mcp install` and `uninstall`: shown first, everything else kept, and taken back to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

FILES = {"claude": ".claude.json", "codex": ".codex/config.toml", "cursor": ".cursor/mcp.json"}

CLAUDE = '{\n    "projects": {"/a": {"history": ["ü", "\\u00e9"]}},\n\n    "mcpServers": {\n        "other": {"command": "x"}\n    }\n}\n'
CONTENTS = {
    "claude": ["", "{}", '{"a":1}', CLAUDE, CLAUDE.replace("\n", "\r\n")],
    "codex": ["", 'model = "x"', '# mine\n[mcp_servers.other]\ncommand = "y"\n', "a = 1\r\n[b]\r\nc = 2\r\n"],
    "cursor": ["{\n}", '{"mcpServers":{}}', CLAUDE],
}


def run(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `nexus mcp` in a home folder of its own."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
    command = [sys.executable, "-m", "nexus", "mcp", *words]
    return subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False)


def written(home: Path, client: str) -> Path:
    return home / FILES[client]


def servers(home: Path, client: str) -> dict[str, Any]:
    """Return the servers in a client's file."""
    text = written(home, client).read_text()
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]
    return json.loads(text)["mcpServers"]


@pytest.mark.parametrize(("client", "content"), [(client, text) for client in CONTENTS for text in CONTENTS[client]])
def test_uninstalling_gives_back_the_bytes(client: str, content: str, tmp_path: Path) -> None:
    file = written(tmp_path, client)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content.encode())
    file.chmod(0o640)
    done = run(tmp_path, "install", client, "--yes", "--write", "-w", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "gets:" in done.stdout
    entry = servers(tmp_path, client)["nexus"]
    assert entry["args"] == ["mcp", "--workspace", str(tmp_path), "--write"]
    assert Path(entry["command"]).is_file()
    assert file.stat().st_mode & 0o777 == 0o640
    assert "already" in run(tmp_path, "install", client, "--yes", "--write", "-w", str(tmp_path)).stdout
    assert run(tmp_path, "install", client, "--yes", "--principal", "ü😀").returncode == 0
    assert servers(tmp_path, client)["nexus"]["args"] == ["mcp", "--principal", "ü😀"]
    assert run(tmp_path, "uninstall", client).returncode == 0
    assert file.read_bytes() == content.encode()
    again = run(tmp_path, "uninstall", client)
    assert (again.returncode, "nothing is installed" in again.stderr) == (2, True)


@pytest.mark.parametrize("client", FILES)
def test_file_that_was_not_there_is_made_and_removed(client: str, tmp_path: Path) -> None:
    for words in (["install", client], ["install", client, "--print"], ["install", client, "--print", "--yes"]):
        shown = run(tmp_path, *words)
        assert "nexus" in shown.stdout
        assert "Nothing was written" in shown.stdout
        assert not written(tmp_path, client).exists()
    assert run(tmp_path, "install", client, "--yes").returncode == 0
    assert "already" in run(tmp_path, "install", client, "--yes").stdout
    assert run(tmp_path, "uninstall", client).returncode == 0
    assert not written(tmp_path, client).exists()


@pytest.mark.parametrize("client", FILES)
def test_entry_of_the_user_is_neither_replaced_nor_removed(client: str, tmp_path: Path) -> None:
    file = written(tmp_path, client)
    file.parent.mkdir(exist_ok=True)
    mine = (
        '[mcp_servers.nexus]\ncommand = "mine"\n'
        if client == "codex"
        else '{"mcpServers": {"nexus": {"command": "mine"}}}'
    )
    file.write_text(mine)
    refused = run(tmp_path, "install", client, "--yes")
    assert (refused.returncode, "exists already" in refused.stderr) == (2, True)
    assert file.read_text() == mine
    file.unlink()
    assert run(tmp_path, "install", client, "--yes").returncode == 0
    changed = file.read_text().replace('"mcp"', '"mcp", "--write"')
    file.write_text(changed)
    assert "Left as it is" in run(tmp_path, "uninstall", client).stdout
    assert file.read_text() == changed


@pytest.mark.parametrize(
    ("client", "content"),
    [
        ("claude", "{"),
        ("claude", "[]"),
        ("codex", "= 1"),
        ("cursor", '{"mcpServers": 3}'),
        ("codex", "mcp_servers = {}"),
    ],
)
def test_file_that_cannot_be_added_to_stays_as_it_is(client: str, content: str, tmp_path: Path) -> None:
    file = written(tmp_path, client)
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    refused = run(tmp_path, "install", client, "--yes")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "nothing was written" in refused.stderr
    assert file.read_text() == content


@pytest.mark.parametrize("addition", ["startup_timeout_sec = 20\n", '[mcp_servers.nexus.env]\nA = "1"\n'])
def test_entry_with_more_keys_of_the_user_stays_whole_in_codex(addition: str, tmp_path: Path) -> None:
    file = written(tmp_path, "codex")
    file.parent.mkdir()
    file.write_text('[profiles.mine]\nmodel = "x"\n')
    assert run(tmp_path, "install", "codex", "--yes").returncode == 0
    file.write_text(changed := file.read_text() + addition)
    done = run(tmp_path, "uninstall", "codex")
    assert done.returncode == 0
    assert "changed since" in done.stdout
    assert file.read_text() == changed
    assert servers(tmp_path, "codex")["nexus"]["args"] == ["mcp"]


def test_folders_of_the_variables_are_used(tmp_path: Path) -> None:
    claude, codex = tmp_path / "c", tmp_path / "x"
    variables = {"CLAUDE_CONFIG_DIR": str(claude), "CODEX_HOME": str(codex), "NEXUS_LEDGER": str(tmp_path / "l.db")}
    for client, file in (("claude", claude / ".claude.json"), ("codex", codex / "config.toml")):
        done = run(tmp_path, "install", client, "--yes", "--json", **variables)
        assert json.loads(done.stdout)["file"] == str(file)
        assert json.loads(done.stdout)["command"][-2:] == ["--ledger", str(tmp_path / "l.db")]
        assert run(tmp_path, "uninstall", client, **variables).returncode == 0
        assert not file.exists()
