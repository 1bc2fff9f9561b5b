"""`nexus proxy install` and `uninstall`: entries in clients' settings that come and go, while all else keeps its bytes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nexus.errors import BadConfig, BadSetting, NotFound
from nexus.proxy.installation import (
    gives_up,
    install,
    installation_of,
    notes,
    plan,
    plan_removal,
    settings_file,
    uninstall,
)
from nexus.proxy.settings import read_settings
from nexus.testing.model_server import model_server
from nexus.text.json_members import with_member, without_member
from proxy.test_commands import NEXUS, environment, proxy_process
from proxy.test_commands import nexus as command

URL = "http://127.0.0.1:8788"
CLIENTS = ("claude", "codex")

JSON_TEXTS = {
    "spaces": '{\n  "model": "opus",\n  "env": {\n    "A": "1",\n    "B": "2"\n  },\n  "permissions": {"allow": []}\n}\n',
    "tabs": '{\n\t"env": {\n\t\t"A": "1"\n\t},\n\t"x": [1, 2.50, 1e3]\n}',
    "no env": '{\n    "x": {"y": "ä\\u00e4 }{ \\" ,"},\n    "z": null\n}\n',
    "no env in tabs": '{\n\t"x": 1\n}\n',
    "lines of windows": '{\r\n  "x": 1,\r\n  "env": {\r\n    "A": "1"\r\n  }\r\n}\r\n',
    "no env, lines of windows": '{\r\n  "x": 1\r\n}\r\n',
    "one line": '{"x":1,"env":{"A":"1"},"y":{"env":{"B":2}}}',
    "empty": "{}",
    "empty with space": " { } \n",
    "empty env": '{"env": {  }, "x": 0}\n',
    "twice": '{"env": {"A": "1"}, "env": {"B": "2"}}\n',
}
TOML_TEXTS = {
    "comments": '# mine\nmodel = "gpt-5"  # the model\n\n[profiles.a]\nmodel_provider = "nexus"\n\n# end\n',
    "no end": 'model = "gpt-5"',
    "tables": '[model_providers.azure]\nname = "Azure"\nbase_url = "https://x"\n[mcp_servers.a]\nargs = [\n  "[x]",\n]\n',
    "long text": 'notify = """\n[model_providers.nexus]\nmodel_provider = "nexus"\n"""\n',
    "lines of windows": 'model = "gpt-5"\r\n[a]\r\nb = 1\r\n',
    "features": "[features]  # mine\nmemories = true\n[a]\nb = 1\n",
    "features at the end": "x = 1\n[features]",
    "features of windows": "x = 1\r\n[ features ]\r\nmemories = true\r\n",
    "dotted features": "features.memories = true\n[a]\nb = 1\n",
    "feature with settings": "[features.rollout_budget]\nlimit = 1\n",
    "text like features": 'notify = """\n[features]\n"""\n',
    "dotted": 'model_providers.azure.name = "Azure"\n',
    "empty": "",
}


class Home:
    """A user's home folder with the file of a client."""

    def __init__(self, folder: Path, client: str, text: str | None = None) -> None:
        self.folder = folder
        self.client = client
        self.file = settings_file(client, {}, folder)
        if text is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.write(text)

    @property
    def own(self) -> Path:
        return self.folder / ".nexus"

    def write(self, text: str) -> None:
        self.file.write_bytes(text.encode())

    def text(self) -> str:
        return self.file.read_bytes().decode()

    def values(self) -> dict[str, Any]:
        return json.loads(self.text()) if self.client == "claude" else tomllib.loads(self.text())

    def install(self, url: str = URL, **variables: str) -> bool:
        """Install, and return whether anything was to be written."""
        change = plan(self.client, url, self.own, variables, self.folder)
        install(change, self.own)
        return not change.is_empty

    def uninstall(self) -> list[str]:
        """Take it back, and return what stays."""
        change = plan_removal(self.client, self.own)
        uninstall(change, self.own)
        return [*change.remaining]


@pytest.mark.parametrize("name", JSON_TEXTS)
def test_settings_of_claude_code_get_three_entries_and_are_as_before_afterwards(name: str, tmp_path: Path) -> None:
    text = JSON_TEXTS[name]
    home = Home(tmp_path, "claude", text)
    before = home.values()
    assert home.install()
    added = {"ANTHROPIC_BASE_URL": URL, "ENABLE_TOOL_SEARCH": "true", "CLAUDE_CODE_MAX_RETRIES": "4"}
    assert home.values() == {**before, "env": {**before.get("env", {}), **added}}
    if "\n" in text.strip():
        assert home.text().count("\r\n") in (0, home.text().count("\n"))
    assert home.uninstall() == []
    assert home.text() == text
    assert installation_of("claude", home.own) is None


@pytest.mark.parametrize("key", ["", "sk-x"])
@pytest.mark.parametrize("name", TOML_TEXTS)
def test_settings_of_codex_get_a_provider_and_are_as_before_afterwards(name: str, key: str, tmp_path: Path) -> None:
    text = TOML_TEXTS[name]
    home = Home(tmp_path, "codex", text)
    before = home.values()
    assert home.install(OPENAI_API_KEY=key)
    after = home.values()
    assert after.pop("model_provider") == "nexus"
    assert after["features"].pop("unbounded_connection_retries") is False
    if "features" not in before:
        assert after.pop("features") == {}
    provider = after["model_providers"].pop("nexus")
    if not after["model_providers"]:
        del after["model_providers"]
    assert after == before
    assert provider["request_max_retries"] == 2
    assert provider["base_url"] == (f"{URL}/v1" if key else f"{URL}/backend-api/codex")
    assert provider.get("env_key") == ("OPENAI_API_KEY" if key else None)
    assert home.uninstall() == []
    assert home.text() == text


@pytest.mark.parametrize("client", CLIENTS)
def test_file_that_was_not_there_is_gone_afterwards(client: str, tmp_path: Path) -> None:
    home = Home(tmp_path, client)
    home.install()
    assert home.file.stat().st_mode & 0o777 == 0o600
    assert home.uninstall() == []
    assert not home.file.exists()
    with pytest.raises(NotFound, match="nothing is installed"):
        home.uninstall()


@pytest.mark.parametrize("client", CLIENTS)
def test_second_installation_writes_nothing_and_another_address_replaces_the_first(client: str, tmp_path: Path) -> None:
    text = '{"x": 1}\n' if client == "claude" else "# mine\nx = 1\n"
    home = Home(tmp_path, client, text)
    home.install()
    first = home.text()
    assert not home.install()
    assert not home.install(f"{URL}/")
    assert home.text() == first
    assert home.install("http://127.0.0.1:9000")
    assert "8788" not in home.text()
    assert len(home.text()) == len(first)
    assert home.uninstall() == []
    assert home.text() == text


def test_what_the_user_changed_in_claude_code_since_stays(tmp_path: Path) -> None:
    home = Home(tmp_path, "claude", '{\n  "x": 1\n}\n')
    home.install()
    changed = home.text().replace(URL, "https://gateway.example").replace('"x": 1', '"x": 2,\n  "new": []')
    home.write(changed.replace('"4"\n', '"4",\n    "MINE": "1"\n'))
    with pytest.raises(BadConfig, match=r"leads to 'https://gateway\.example'"):
        home.install()
    assert home.uninstall() == ["ANTHROPIC_BASE_URL"]
    assert home.values() == {
        "x": 2, "new": [], "env": {"ANTHROPIC_BASE_URL": "https://gateway.example", "MINE": "1"},
    }  # fmt: skip


def test_what_the_user_changed_in_codex_since_stays(tmp_path: Path) -> None:
    home = Home(tmp_path, "codex", "x = 1\n")
    home.install()
    home.write(home.text().replace("x = 1", "x = 2").replace("wire_api", 'query = "mine"\nwire_api'))
    assert home.uninstall() == ["model_providers.nexus"]
    assert home.values()["x"] == 2
    assert "model_provider" not in home.values()
    assert home.values()["model_providers"]["nexus"]["query"] == "mine"
    with pytest.raises(BadConfig, match=r"model_providers\.nexus: exists already"):
        home.install()


def test_entries_that_the_user_has_already_are_not_taken_back(tmp_path: Path) -> None:
    own = '"ENABLE_TOOL_SEARCH": "auto", "CLAUDE_CODE_MAX_RETRIES": "9"'
    home = Home(tmp_path, "claude", f'{{"env": {{"ANTHROPIC_BASE_URL": "{URL}", {own}}}}}')
    assert not home.install()
    home = Home(tmp_path, "claude", f'{{"env": {{{own}}}}}')
    home.install()
    home.uninstall()
    assert home.text() == f'{{"env": {{{own}}}}}'
    text = "[features]\nunbounded_connection_retries = true\n"
    home = Home(tmp_path, "codex", text)
    home.install()
    assert home.values()["features"] == {"unbounded_connection_retries": True}
    home.uninstall()
    assert home.text() == text


@pytest.mark.parametrize("client", CLIENTS)
def test_installation_of_an_earlier_version_gets_the_entries_that_it_lacks(client: str, tmp_path: Path) -> None:
    text = '{"x": 1}\n' if client == "claude" else "# mine\nx = 1\n"
    home = Home(tmp_path, client, text)
    home.install()
    written = installation_of(client, home.own)
    assert written is not None
    assert gives_up(written)
    before = dict(written.entries)
    if client == "claude":
        home.write(without_member(home.text(), ("env",), "CLAUDE_CODE_MAX_RETRIES"))
        del before["CLAUDE_CODE_MAX_RETRIES"]
    else:
        home.write(home.text().replace(before.pop("features.unbounded_connection_retries"), ""))
    (home.own / f"proxy-installed-{client}.json").write_bytes(msgspec.json.encode(replace(written, entries=before)))
    assert not gives_up(written)
    assert home.install()
    assert gives_up(written)
    assert home.uninstall() == []
    assert home.text() == text


@pytest.mark.parametrize(
    ("client", "text", "error"),
    [
        ("claude", '{"env": {"ANTHROPIC_BASE_URL": "https://gateway.example"}}', "name it as upstream"),
        ("claude", '{"env": []}', "no JSON object"),
        ("claude", "[]", "no JSON object"),
        ("claude", '{"x": 1,}', "no JSON"),
        ("claude", "// mine\n{}", "no JSON"),
        ("claude", "[" * 100_000, "no JSON"),
        ("codex", 'model_provider = "azure"\n', "name it as upstream"),
        ("codex", "[model_providers.nexus]\nname = 1\n", "exists already"),
        ("codex", 'model_providers = {azure = {name = "A"}}\n', "without rewriting"),
        ("codex", "features = {memories = true}\n", "without rewriting"),
        ("codex", "features = 1\n", "without rewriting"),
        ("codex", "x = \n", "no TOML"),
    ],
)
def test_file_that_cannot_take_the_entries_stays_as_it_is(client: str, text: str, error: str, tmp_path: Path) -> None:
    home = Home(tmp_path, client, text)
    with pytest.raises(BadConfig, match=error):
        home.install()
    assert home.text() == text
    assert installation_of(client, home.own) is None


@pytest.mark.parametrize("client", CLIENTS)
def test_bytes_that_are_no_text_and_wrong_addresses_are_refused(client: str, tmp_path: Path) -> None:
    home = Home(tmp_path, client, "")
    with pytest.raises(BadSetting, match="no address"):
        home.install("127.0.0.1:8788")
    home.file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="no UTF-8"):
        home.install()
    home.file.unlink()
    home.file.mkdir()
    with pytest.raises(BadConfig, match="not readable"):
        home.install()


def test_link_stays_and_the_mode_of_the_file_too(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}")
    kept.chmod(0o640)
    home = Home(tmp_path, "claude")
    home.file.parent.mkdir()
    home.file.symlink_to(kept)
    home.install()
    assert home.file.is_symlink()
    assert "ANTHROPIC_BASE_URL" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == [".claude", ".nexus", "dotfiles.json"]


def test_file_that_changes_before_it_is_written_is_not_overwritten(tmp_path: Path) -> None:
    home = Home(tmp_path, "claude", "{}")
    change = plan("claude", URL, home.own, {}, tmp_path)
    home.write('{"new": 1}')
    with pytest.raises(BadConfig, match="changed meanwhile"):
        install(change, home.own)
    assert home.text() == '{"new": 1}'
    assert home.install()
    assert home.uninstall() == []
    assert home.text() == '{"new": 1}'


def test_installation_that_was_killed_before_it_wrote_is_done_again_or_taken_back(tmp_path: Path) -> None:
    home = Home(tmp_path, "codex", "x = 1\n")
    home.install()
    home.write("x = 1\n")  # as it was when only the memory of it had been written
    assert home.install()
    assert home.values()["model_provider"] == "nexus"
    home.write("x = 1\n")
    assert home.uninstall() == ["model_provider", "features.unbounded_connection_retries", "model_providers.nexus"]
    assert home.text() == "x = 1\n"


KEYS = st.text('ab"\\{}:, \nä', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.sampled_from([None, 0, 2, "\t"]), KEYS.map("new".__add__))
def test_member_comes_and_goes_in_every_object(values: dict[str, Any], indent: int | str | None, key: str) -> None:
    text = json.dumps({"first": 1, "inner": values}, indent=indent)
    changed = with_member(text, ("inner",), key, {"x": "y"})
    assert json.loads(changed) == {"first": 1, "inner": {**values, key: {"x": "y"}}}
    assert without_member(changed, ("inner",), key) == text
    for name in values:
        rest = {other: value for other, value in values.items() if other != name}
        assert json.loads(without_member(text, ("inner",), name))["inner"] == rest


def test_codex_with_a_login_goes_where_its_requests_belong() -> None:
    settings = read_settings(None, {})
    assert settings.upstream_for("responses", "codex", "gpt-5", "/backend-api/codex/responses") == "https://chatgpt.com"
    assert settings.upstream_for("responses", "codex", "gpt-5", "/v1/responses") == "https://api.openai.com"
    chosen = read_settings(None, {"upstreams": [{"url": "http://127.0.0.1:1"}]})
    assert chosen.upstream_for("responses", "codex", "gpt-5", "/backend-api/codex/responses") == "http://127.0.0.1:1"


# the commands ----------------------------------------------------------------------------------------------------------


def test_without_a_terminal_it_only_shows_until_it_is_told_to_write(tmp_path: Path) -> None:
    shown = command(tmp_path, "proxy", "install", "claude")
    assert shown.returncode == 0
    assert f'"ANTHROPIC_BASE_URL": "{URL}"' in shown.stdout
    assert '"CLAUDE_CODE_MAX_RETRIES": "4"' in shown.stdout
    assert "it says so after about 10 seconds" in shown.stdout
    assert "Nothing was written" in shown.stdout
    assert json.loads(command(tmp_path, "proxy", "install", "claude", "--json").stdout)["written"] is False
    assert not (tmp_path / ".claude").exists()
    written = command(tmp_path, "proxy", "install", "claude", "--yes")
    assert "To leave: nexus proxy uninstall claude" in written.stdout
    assert "already: nothing to write" in command(tmp_path, "proxy", "install", "claude", "--yes").stdout
    back = command(tmp_path, "proxy", "uninstall", "claude", "--json")
    assert json.loads(back.stdout)["remaining"] == []
    assert not (tmp_path / ".claude" / "settings.json").exists()
    assert command(tmp_path, "proxy", "uninstall", "claude").returncode == 2


@pytest.mark.parametrize(
    ("client", "own", "said"),
    [
        ("codex", "", "after about 10 seconds"),
        ("codex", "[features]\nunbounded_connection_retries = false", "after about 10 seconds"),
        ("codex", "[features]\nunbounded_connection_retries = true", "never gives up"),
        ("claude", "{}", "after about 10 seconds"),
        ("claude", '{"env": {"CLAUDE_CODE_MAX_RETRIES": "20"}}', "stays as you set it"),
    ],
)
def test_it_says_what_a_dead_proxy_makes_of_the_users_own_settings(
    client: str, own: str, said: str, tmp_path: Path
) -> None:
    file = settings_file(client, {}, tmp_path)
    file.parent.mkdir()
    file.write_text(own, "utf-8")
    change = plan(client, "http://127.0.0.1:8788", tmp_path / "nexus", {"OPENAI_API_KEY": "k"}, tmp_path)
    assert said in notes(change, {"OPENAI_API_KEY": "k"})[0]


def test_folders_that_the_clients_variables_name_are_used(tmp_path: Path) -> None:
    folders = {"CLAUDE_CONFIG_DIR": str(tmp_path / "c"), "CODEX_HOME": str(tmp_path / "x")}
    for client in CLIENTS:
        assert command(tmp_path, "proxy", "install", client, "--yes", **folders).returncode == 0
    assert (tmp_path / "c" / "settings.json").exists()
    assert (tmp_path / "x" / "config.toml").exists()
    other = command(tmp_path, "proxy", "install", "claude", "--yes")
    assert "earlier installation" in other.stderr
    for client in CLIENTS:
        assert command(tmp_path, "proxy", "uninstall", client).returncode == 0
    assert not (tmp_path / "c" / "settings.json").exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_terminal_is_asked(answer: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = [*NEXUS, "proxy", "install", "codex"]
    with subprocess.Popen(words, env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass
        assert running.wait(60) == 0
    os.close(ours)
    assert b"Write it?" in shown
    assert (tmp_path / ".codex" / "config.toml").exists() == (answer == "y")


def test_doctor_knows_the_entries(tmp_path: Path) -> None:
    def findings(client: str, **variables: str) -> dict[str, str]:
        ended = command(tmp_path, "proxy", "doctor", "--json", **variables)
        found = [each for each in json.loads(ended.stdout) if client in each["subject"]]
        return {each["subject"]: f"{each['state']}: {each['text']}" for each in found}

    with model_server() as provider:
        (tmp_path / ".nexus").mkdir()
        with proxy_process(tmp_path, provider) as started:
            for client in CLIENTS:
                command(tmp_path, "proxy", "install", client, "--yes", "--url", started["url"])
                (text,) = findings(client).values()
                assert text == f"ok: goes to the running proxy: {started['url']}"
            codex = tmp_path / ".codex" / "config.toml"
            whole = codex.read_text()
            codex.write_text(whole.replace("unbounded_connection_retries = false", "memories = true"))
            (text,) = findings("codex").values()
            assert text.startswith("note: goes to the running proxy: ")
            assert "it never gives up" in text
            codex.write_text(whole)
        for client in CLIENTS:
            (text,) = findings(client).values()
            assert text.startswith(f"problem: goes to {started['url']}, where nothing answers")
            assert f"nexus proxy uninstall {client}" in text
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    (text,) = findings("claude").values()
    assert text.startswith("note: ")
    assert "no longer has any of its entries" in text
    command(tmp_path, "proxy", "uninstall", "codex")
    left = '[model_providers.other]\nbase_url = "http://localhost:9/v1"\n'
    (tmp_path / ".codex" / "config.toml").write_text(left)
    assert "provider other leads to http://localhost:9/v1" in findings("codex")["~/.codex/config.toml"]
