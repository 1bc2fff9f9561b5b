"""`nexus config show`: every value with where it comes from, servers without their secrets, warnings, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.running import run
from nexus.types.config import Config
from nexus.workspace.config import values_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".nexus").mkdir()
    (tmp_path / ".nexus" / "config.toml").write_text('persona = "ada"\n[hooks]\ndisabled = ["guard"]\n')
    (tmp_path / ".nexus" / "mcp.json").write_text(
        '{"mcpServers": {"web": {"url": "https://example.com/mcp", "headers": {"X-Key": "SECRET"}},'
        ' "files": {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "SECRET"}}}}'
    )
    return tmp_path


def test_every_value_is_a_line_with_where_it_comes_from(root: Path) -> None:
    shown = run("config", "show", folder=root)
    assert shown.code == 0
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["persona", "ada", ".nexus/config.toml"] in lines
    assert ["instructions.file_chars", "20,000", "default"] in lines
    assert [key for key in values_of(Config()) if not any(line[:1] == [key] for line in lines)] == []
    assert "Files read: .nexus/config.toml, .nexus/mcp.json" in shown.out
    assert "files" in shown.out and "npx -y files" in shown.out and "TOKEN" in shown.out
    assert "Warning: .nexus/config.toml: hooks.disabled ignored" in shown.out
    assert "SECRET" not in shown.out
    assert not (root / ".nexus" / "ledger.db").exists()


def test_the_same_as_json(root: Path) -> None:
    ran = run("config", "show", "--json", folder=root)
    value = ran.json
    assert value["workspace"] == str(root)
    assert value["values"]["persona"] == {"value": "ada", "from": ".nexus/config.toml"}
    assert value["values"]["hooks.disabled"] == {"value": [], "from": "default"}
    assert value["mcp_servers"]["files"]["env"] == ["TOKEN"]
    assert value["mcp_servers"]["web"]["headers"] == ["X-Key"]
    assert [one["origin"] for one in value["warnings"]] == [".nexus/config.toml"]
    assert "SECRET" not in ran.out


def test_a_variable_is_named_and_a_workspace_may_be_given(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXUS_MODEL", "gpt-5")
    shown = run("config", "show", "-w", root, folder=tmp_path_factory.mktemp("elsewhere")).out
    assert ["model", "gpt-5", "variable", "NEXUS_MODEL"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize("command", [("assemble", "hi"), ("run", "hi"), ("status",)])
def test_a_model_of_a_workspace_is_refused_in_one_line(root: Path, command: tuple[str, ...]) -> None:
    (root / ".nexus" / "config.toml").write_text('model = "deepseek-chat"\ncolour = 1\n')
    err = run(*command, folder=root).err
    (line,) = [line for line in err.splitlines() if "deepseek" in line]
    assert line.startswith(
        "Warning: .nexus/config.toml: model ignored in a workspace's file: 'deepseek-chat' would send"
    )
    assert f'(accept: trusted = ["{root}"] in ' in line
    assert "colour ignored: unknown setting" in err


def test_a_bad_file_and_a_missing_folder_are_one_line_and_an_exit_code(root: Path) -> None:
    (root / ".nexus" / "config.toml").write_text("[instructions]\nfile_chars = -1\n")
    ran = run("config", "show", folder=root)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "nexus: .nexus/config.toml: instructions.file_chars: Expected `int` >= 1000\n"
    assert run("config", "show", "--json", folder=root).json["error"]["code"] == "bad_config"
    assert run("assemble", "hi", folder=root).code == 2, "no command goes on with half a configuration"
    assert run("config", "show", "-w", root / "nowhere", folder=root).code == 4


def test_names_and_values_have_no_power_over_a_terminal(root: Path) -> None:
    (root / ".nexus" / "config.toml").write_text('model = "a\\u001b[31mred\\nline"\n')
    (root / ".nexus" / "mcp.json").write_text('{"mcpServers": {"\\u001b[2J": {"command": "x\\ny"}, "b\\u001b": 1}}')
    shown = run("config", "show", folder=root).out
    assert "\x1b" not in shown
    assert "\\x1b[31mred\\nline" in shown


@pytest.mark.parametrize(
    "command", [("sessions",), ("history", "main"), ("search", "GIN"), ("session", "show", "main")]
)
@pytest.mark.parametrize("text", ["model = ", "model = 1" + "0" * 5_000, "timezone = 1"])
def test_broken_configuration_does_not_block_stored_history(
    tmp_path: Path, command: tuple[str, ...], text: str
) -> None:
    (tmp_path / ".nexus").mkdir()
    with nexus.open(tmp_path) as nx:
        nx.record(nx.assemble("Which index?"), nexus.AgentResult((nexus.assistant("GIN."),)))
    expected = run(*command, folder=tmp_path)
    (tmp_path / ".nexus" / "config.toml").write_text(text)
    shown = run(*command, folder=tmp_path)
    assert (shown.code, shown.out) == (0, expected.out)
    assert shown.err.startswith("Warning: .nexus/config.toml: not used: ")
    assert run("assemble", "hi", folder=tmp_path).code == 2, "the configuration decides about contexts"
