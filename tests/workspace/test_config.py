"""The configuration: which files, how they are merged, where each value comes from, what a workspace may set."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import nexus
from contracts.modules import ROOT
from nexus.errors import BadConfig
from nexus.types.config import Config, ImagesConfig, InstructionsConfig
from nexus.types.settings import Settings
from nexus.workspace.config import ALLOWED, Configuration, read_configuration, values_of
from workspace.sources.gathering import context, put, told, write

OWN_ONLY = {
    "summarizer",
    "instructions.file_chars",
    "instructions.total_chars",
    "instructions.include_depth",
    "hooks.timeout_ms",
    "hooks.disabled",
    "files.hard_links",
    "trusted",
}
"""Keys that only the user's own file sets. A new key goes here, or into ALLOWED."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write(tmp_path / "home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace one folder deep in a repository."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return write(tmp_path / "repo" / "app")


def read(root: Path, home: Path, **variables: str) -> Configuration:
    return read_configuration(root, home, variables)


def mine(home: Path, text: str) -> None:
    put(home / "config.toml", text)


def theirs(root: Path, text: str) -> None:
    put(root / ".nexus" / "config.toml", text)


def test_values_are_defaults_without_files(root: Path, home: Path) -> None:
    found = read(root, home)
    assert found.config == Config()
    assert set(found.origins.values()) == {"default"}
    assert set(found.origins) == set(values_of(Config()))
    assert (found.files, found.servers, found.warnings) == ((), (), ())


def test_layers_merge_by_key_and_record_origins(root: Path, home: Path) -> None:
    """Document 004, "Key Types/Classes": "merged prompt, config, and MCP servers", "where each piece of context came from"."""
    mine(
        home,
        f'trusted = ["{root.parent}"]\nmodel = "gpt-4o"\ntimezone = "Asia/Shanghai"\n[instructions]\nfile_chars = 15_000\ntotal_chars = 50_000\n',
    )
    theirs(root.parent, 'model = "gpt-5"\n[images]\nmax_bytes = 40_000\n')
    theirs(root, 'persona = "ada"\n[instructions]\nnames = ["AGENTS.md"]\n')
    found = read(root, home)
    assert found.config == Config(
        instructions=InstructionsConfig(names=("AGENTS.md",), file_chars=15_000, total_chars=50_000),
        images=ImagesConfig(max_bytes=40_000),
        model="gpt-5",
        trusted=(str(root.parent),),
        persona="ada",
        timezone="Asia/Shanghai",
    )
    own = f"{home}/config.toml"
    assert {key: origin for key, origin in found.origins.items() if origin != "default"} == {
        "instructions.file_chars": own,
        "instructions.total_chars": own,
        "timezone": own,
        "trusted": own,
        "model": "../.nexus/config.toml",
        "images.max_bytes": "../.nexus/config.toml",
        "instructions.names": ".nexus/config.toml",
        "persona": ".nexus/config.toml",
    }
    assert found.files == (own, "../.nexus/config.toml", ".nexus/config.toml")
    assert found.warnings == ()


def test_variables_override_files_and_arguments_override_all(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine(home, 'model = "gpt-4o"\ntimezone = "Asia/Shanghai"\npersona = "ada"\n')
    found = read(root, home, NEXUS_MODEL="gpt-5", NEXUS_TIMEZONE="Europe/Lisbon", NEXUS_PERSONA="eve")
    assert (found.config.model, found.config.timezone, found.config.persona) == ("gpt-5", "Europe/Lisbon", "eve")
    assert found.origins["persona"] == "variable NEXUS_PERSONA"
    assert read(root, home, NEXUS_MODEL="").config.model == "gpt-4o", "an empty one is none"
    monkeypatch.setenv("NEXUS_MODEL", "gpt-5")
    with nexus.open(root, ledger=":memory:", home=home) as nx:
        assert (nx.model, nx.settings.timezone) == ("gpt-5", "Asia/Shanghai")
        assert nx.assemble("hi").model == "gpt-5"
        assert "Timezone: Asia/Shanghai" in str(nx.assemble("hi").to_openai()["messages"])
    with nexus.open(root, ledger=":memory:", home=home, model="gpt-4.1", timezone="UTC") as nx:
        assert (nx.model, nx.settings.timezone) == ("gpt-4.1", "UTC")
    with nexus.open(root, ledger=":memory:", home=home, config=Config()) as nx:
        assert (nx.model, nx.settings.timezone) == ("claude-sonnet-5-5", "")


def test_a_file_sets_what_calls_begin_with(root: Path, home: Path) -> None:
    mine(home, 'strategy = "digest"\ntemperature = 0.2\nbudget = 9_000\nprincipal = "root"\n')
    with nexus.open(root, ledger=":memory:", home=home, model="gpt-4.1", budget=None, profile="") as nx:
        assert (nx.settings.strategy, nx.settings.budget, nx.settings.principal) == ("digest", 9_000, "")
        assert nx.assemble("hi").to_openai()["temperature"] == 0.2
        assert nx.assemble("hi", budget=12_000, temperature=None).token_budget.available == 12_000
        assert any("principal ignored" in warning.message for warning in nx.assemble("hi").warnings)
    careful = nexus.Settings(temperature=0.7)
    with nexus.open(root, ledger=":memory:", home=home, settings=careful, strategy="keep_user_turns") as nx:
        assert (nx.settings.strategy, nx.settings.temperature) == ("keep_user_turns", 0.7)
    theirs(root, 'strategy = "oldest_first"\ntemperature = 1.5\n')
    found = read(root, home)
    assert (found.config.strategy, found.config.temperature) == ("oldest_first", 0.2)
    assert "trusts" in told(found.warnings)[".nexus/config.toml"]
    mine(home, f'trusted = ["{root}"]')
    assert read(root, home).config.temperature == 1.5
    for wrong in ("temperature = 9", 'strategy = "never"', 'thinking = "very"', "max_tool_result_tokens = -1"):
        mine(home, wrong)
        with pytest.raises(BadConfig, match=wrong.partition(" ")[0]):
            read(root, home)


def test_configured_persona_applies_when_call_names_none(root: Path, home: Path) -> None:
    theirs(root, 'persona = "ada"\n')
    write(root, personas__ada__SOUL="I am Ada.", personas__eve__SOUL="I am Eve.")
    with nexus.open(root, ledger=":memory:", home=home) as nx:
        assert "I am Ada." in nx.assemble("hi").system_prompt
        assert "I am Eve." in nx.assemble("hi", persona="eve").system_prompt


def test_user_file_applies_without_workspace(home: Path) -> None:
    mine(home, 'model = "gpt-4o"\n')
    with nexus.open(ledger=":memory:", home=home) as nx:
        assert nx.model == "gpt-4o"


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ('trusted = ["repo"]', "trusted", "expected absolute paths of folders, not 'repo'"),
        ('[instructions]\nfile_chars = "many"', "instructions.file_chars", "Expected `int`, got `str`"),
        ("[instructions]\nfile_chars = -1", "instructions.file_chars", "Expected `int` >= 1000"),
        ("[instructions]\nfile_chars = true", "instructions.file_chars", "Expected `int`, got `bool`"),
        ("[instructions]\ninclude_depth = 1_000_000", "instructions.include_depth", "Expected `int` <= 20"),
        ('[instructions]\ncaps = "never"', "instructions.caps", "expected one of 'report', 'error'"),
        ("[instructions]\nnames = [1]", "instructions.names[0]", "Expected `str`, got `int`"),
        ('[instructions]\nnames = ["../secret.md"]', "instructions.names", "expected names of files without folders"),
        ('[instructions]\nnames = [""]', "instructions.names", "expected names of files without folders"),
        ("instructions = 3", "instructions", "Expected `object`, got `int`"),
        ("[images]\nmax_bytes = -5", "images.max_bytes", "expected a number that is not negative"),
        ('persona = "../../other"', "persona", "expected the name of a folder in personas/"),
        ('timezone = "Mars/Olympus"', "timezone", "expected an IANA name such as Europe/Lisbon, not 'Mars/Olympus'"),
        ("model = 2026-01-13", "model", "Expected `str`"),
        ("model = =", "", "not TOML: Invalid value (at line 1, column 9)"),
        ("\n\n[a\n", "", "(at line 3, column 3)"),
        ("a = " + "[" * 20_000, "", "not TOML"),
    ],
)
def test_invalid_file_error_names_file_key_and_expectation(
    root: Path, home: Path, text: str, key: str, expected: str
) -> None:
    theirs(root, text)
    with pytest.raises(BadConfig) as caught:
        read(root, home)
    error = caught.value
    assert (error.file, error.key) == (".nexus/config.toml", key)
    assert expected in error.expected
    assert str(error).startswith(f".nexus/config.toml: {key}: " if key else ".nexus/config.toml: ")
    with pytest.raises(BadConfig):
        nexus.open(root, home=home)


@pytest.mark.parametrize("is_users", [True, False])
def test_unknown_key_is_a_warning_and_the_others_count(root: Path, home: Path, *, is_users: bool) -> None:
    text = 'flavour = 1\ntimezone = "UTC"\n[instructions]\nfile_char = 1\nnames = ["AGENTS.md"]\n[images.more]\na = 1\n'
    (mine if is_users else theirs)(home if is_users else root, text)
    found = read(root, home)
    assert (found.config.timezone, found.config.instructions.names) == ("UTC", ("AGENTS.md",))
    flavour, char, more = (warning.message for warning in found.warnings)
    assert {warning.source for warning in found.warnings} == {
        f"{home}/config.toml" if is_users else ".nexus/config.toml"
    }
    assert flavour.startswith("flavour ignored: unknown setting (available: model, budget, ")
    assert char == "instructions.file_char ignored: unknown setting (did you mean instructions.file_chars?)"
    assert more.startswith("images.more ignored: unknown setting (")
    with nexus.open(root, ledger=":memory:", home=home) as nx:
        assert flavour in [warning.message for warning in nx.assemble("hi").warnings]


def test_model_of_a_workspace_is_used_only_if_the_user_trusts_it(root: Path, home: Path) -> None:
    """In both layers, with the user's model from the default, the file, the variable, and of the same provider."""
    theirs(root.parent, 'model = "gpt-5"\n')
    theirs(root, 'model = "deepseek-chat"\n')
    accept = f'(accept: trusted = ["{root}"] in {home}/config.toml, or pass the model)'
    outer = accept.replace(str(root), str(root.parent))
    found = read(root, home)
    assert (found.config.model, found.origins["model"]) == ("", "default")
    assert [(warning.source, warning.message) for warning in found.warnings] == [
        (
            "../.nexus/config.toml",
            f"model ignored in a workspace's file: 'gpt-5' would send your data to openai instead of anthropic {outer}",
        ),
        (
            ".nexus/config.toml",
            f"model ignored in a workspace's file: 'deepseek-chat' would send your data to deepseek instead of anthropic {accept}",
        ),
    ]
    with nexus.open(root, ledger=":memory:", home=home) as nx:
        for _ in range(2):
            ctx = nx.assemble("hi", session="main")
            assert (ctx.model, ctx.provider) == ("claude-sonnet-5-5", "anthropic")
            assert accept in "".join(warning.message for warning in ctx.warnings)
    mine(home, 'model = "gpt-4o"\n')
    (same, _) = (warning.message for warning in read(root, home).warnings)
    assert "'gpt-5' would send your data to openai (accept" in same
    assert read(root, home).config.model == "gpt-4o"
    assert "instead of gemini" in read(root, home, NEXUS_MODEL="gemini-2.5-pro").warnings[1].message
    mine(home, f'trusted = ["{root}"]\nmodel = "gpt-4o"\n')
    found = read(root, home)
    assert (found.config.model, found.origins["model"]) == ("deepseek-chat", ".nexus/config.toml")
    assert [warning.source for warning in found.warnings] == ["../.nexus/config.toml"], "the repository is not trusted"
    mine(home, f'trusted = ["{root.parent}"]\n')
    assert (read(root, home).config.model, read(root, home).warnings) == ("deepseek-chat", ())


def test_workspace_cannot_trust_itself(root: Path, home: Path) -> None:
    theirs(root, f'trusted = ["{root}", "/"]\nmodel = "gpt-5"\n')
    found = read(root, home)
    assert (found.config.model, found.config.trusted) == ("", ())
    assert len(found.warnings) == 2


def test_invalid_variable_gives_the_same_error(root: Path, home: Path) -> None:
    with pytest.raises(BadConfig, match="variable NEXUS_TIMEZONE: timezone: expected an IANA name"):
        read(root, home, NEXUS_TIMEZONE="nowhere")


def test_special_or_binary_file_is_an_error_and_byte_order_mark_is_not(root: Path, home: Path) -> None:
    place = put(root / ".nexus" / "config.toml", "")
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(BadConfig, match="not a regular file"):
        read(root, home)
    place.unlink()
    place.write_bytes('model = "ü"'.encode("utf-16"))
    with pytest.raises(BadConfig, match="not UTF-8"):
        read(root, home)
    place.write_bytes(b"#" * 100_001)
    with pytest.raises(BadConfig, match="larger than 100,000 bytes"):
        read(root, home)
    place.write_bytes(b'\xef\xbb\xbfpersona = "eve"\r\n')
    assert read(root, home).config.persona == "eve"
    place.unlink()
    place.symlink_to(place)
    with pytest.raises(BadConfig, match="circle of links"):
        read(root, home)


def test_workspace_file_leading_outside_is_not_read(root: Path, home: Path) -> None:
    outside = put(home.parent / "outside.toml", 'model = "gpt-5"')
    (root / ".nexus").mkdir()
    (root / ".nexus" / "config.toml").symlink_to(outside)
    (root / ".nexus" / "mcp.json").symlink_to(outside)
    (home / "config.toml").symlink_to(outside)
    found = read(root, home)
    assert found.origins["model"] == f"{home}/config.toml", "the user's own may be a link"
    assert set(told(found.warnings)) == {".nexus/config.toml", ".nexus/mcp.json"}
    assert "leads out of its folder" in told(found.warnings)[".nexus/config.toml"]


def test_every_setting_states_if_workspace_may_set_it() -> None:
    assert set(ALLOWED) | OWN_ONLY == set(values_of(Config()))
    assert not set(ALLOWED) & OWN_ONLY


@pytest.mark.parametrize(
    ("own", "text", "key", "value"),
    [
        ("", "[instructions]\nfile_chars = 90_000", "instructions.file_chars", 20_000),
        ("", "[instructions]\ntotal_chars = 5_000", "instructions.total_chars", 60_000),
        ("", "[instructions]\ninclude_depth = 0", "instructions.include_depth", 5),
        ("", "[images]\nmax_pixels = 1_000", "images.max_pixels", 1_000),
        ("", '[instructions]\nnames = [".env"]', "instructions.names", ("NEXUS.md", "AGENTS.md", "CLAUDE.md")),
        ("", '[instructions]\nnames = ["CLAUDE.md", "AGENTS.md"]', "instructions.names", ("CLAUDE.md", "AGENTS.md")),
        ('[instructions]\ncaps = "error"', '[instructions]\ncaps = "report"', "instructions.caps", "error"),
        ("", '[instructions]\ncaps = "error"', "instructions.caps", "error"),
        ("", "[images]\nmax_pixels = 50_000_000", "images.max_pixels", 40_000_000),
        ("", "[images]\nkeep_turns = 3", "images.keep_turns", 3),
        ("[images]\nkeep_turns = 2", "[images]\nkeep_turns = 0", "images.keep_turns", 2),
        ("[images]\nlongest_edge = 1_000", "[images]\nlongest_edge = 2_000", "images.longest_edge", 1_000),
        ('[hooks]\ndisabled = ["spy"]', "[hooks]\ndisabled = []", "hooks.disabled", ("spy",)),
        ("", '[hooks]\ndisabled = ["guard"]', "hooks.disabled", ()),
        ("", "[hooks]\ntimeout_ms = 1", "hooks.timeout_ms", 1_000),
    ],
)
def test_workspace_file_may_only_narrow_settings(
    root: Path, home: Path, own: str, text: str, key: str, value: Any
) -> None:
    mine(home, own)
    theirs(root, text)
    found = read(root, home)
    assert values_of(found.config)[key] == value
    taken = found.origins[key] == ".nexus/config.toml"
    assert bool(found.warnings) != taken
    if not taken:
        assert told(found.warnings)[".nexus/config.toml"].startswith(f"{key} ignored in a workspace's file")
    mine(home, text)
    (root / ".nexus" / "config.toml").unlink()
    assert read(root, home).origins[key] == f"{home}/config.toml", "the user's own file sets everything"


def test_workspace_file_does_not_change_user_instructions(root: Path, home: Path) -> None:
    write(home, NEXUS="Personal.", AGENTS="Mine, one.", CLAUDE="Mine, two.\n@part.md", part="A part.")
    write(root, AGENTS="Theirs.", CLAUDE="Theirs, too.")
    theirs(root, '[instructions]\nnames = ["CLAUDE.md"]\ninclude_depth = 0\nfile_chars = 1_000\n')
    ctx = context(root, "instructions", home=home)
    assert all(
        text in ctx.system_prompt for text in ("Personal.", "Mine, one.", "Mine, two.", "A part.", "Theirs, too.")
    )
    assert "Theirs." not in ctx.system_prompt


def test_configuration_warnings_are_in_every_report(root: Path, home: Path) -> None:
    theirs(root, "[hooks]\ndisabled = []\ntimeout_ms = 5")
    ctx = context(root, "surroundings", home=home)
    assert "hooks.timeout_ms ignored" in told(ctx.warnings)[".nexus/config.toml"]
    assert "hooks.timeout_ms ignored" in ctx.report


def test_mcp_servers_merge_by_name_with_later_layer_winning(root: Path, home: Path) -> None:
    """Document 004, "Key Types/Classes": `LoadedContext` has "merged prompt, config, and MCP servers"."""
    files = {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "s"}, "disabled": True}
    put(home / "mcp.json", json.dumps({"mcpServers": {"files": files, "mail": {"command": "mail"}}}))
    web = {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}}
    put(root / ".nexus" / "mcp.json", json.dumps({"mcpServers": {"web": web, "mail": {"command": "other"}}}))
    found = read(root, home)
    own = f"{home}/mcp.json"
    shown = [(one.name, one.command, one.args, one.url, one.origin, one.is_users) for one in found.servers]
    assert shown == [
        ("files", "npx", ("-y", "files"), "", own, True),
        ("mail", "other", (), "", ".nexus/mcp.json", False),
        ("web", "", (), "https://example.com/mcp", ".nexus/mcp.json", False),
    ]
    assert found.servers[0].other == {"disabled": True}
    assert found.files == (own, ".nexus/mcp.json")
    note = f"MCP server 'mail' replaces the one in {own}"
    assert told(found.warnings) == {".nexus/mcp.json": note}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", "not JSON: Expecting value: line 1 column 1"),
        ("[]", 'object "mcpServers" missing'),
        ('{"mcpServers": []}', 'object "mcpServers" missing'),
        ("[" * 50_000, "not JSON"),
        ('{"mcpServers": {"a": {}}}', 'needs either "command" or "url"'),
        ('{"mcpServers": {"a": {"command": "x", "url": "y"}}}', 'needs either "command" or "url"'),
        ('{"mcpServers": {"a": {"command": 3}}}', "Expected `str`, got `int`"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "Expected `array`, got `str`"),
        ('{"mcpServers": {"a": 1}}', "an object as its entry"),
        ('{"mcpServers": {" ": {"command": "x"}}}', "needs a name"),
        ('{"mcpServers": {"a": {"command": "x", "own": true, "origin": "~/.nexus/mcp.json"}, "b": 1}}', "an object"),
    ],
)
def test_invalid_mcp_entry_or_file_is_a_warning(root: Path, home: Path, text: str, why: str) -> None:
    put(home / "mcp.json", '{"mcpServers": {"good": {"command": "x"}}}')
    put(root / ".nexus" / "mcp.json", text)
    found = read(root, home)
    assert "good" in [one.name for one in found.servers]
    assert all(one.is_users == (one.name == "good") for one in found.servers), (
        "an entry cannot say that it is the user's"
    )
    assert why in told(found.warnings)[".nexus/mcp.json"]


def test_user_folder_inside_workspace_is_read_once(tmp_path: Path) -> None:
    mine(tmp_path / ".nexus", "[hooks]\ntimeout_ms = 5")
    found = read(tmp_path, tmp_path / ".nexus")
    assert (found.config.hooks.timeout_ms, found.files, found.warnings) == (5, (f"{tmp_path}/.nexus/config.toml",), ())


def test_docs_list_every_setting_with_default() -> None:
    page = (ROOT / "docs" / "instructions.md").read_text("utf-8")
    rows = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in page.splitlines() if row.startswith("| `")}
    for key, value in values_of(Config()).items():
        if key in Settings.__struct_fields__ and key not in ("model", "persona", "timezone"):
            assert f"`{key}`" in (ROOT / "docs" / "library.md").read_text("utf-8")
            continue
        shown = json.dumps(list(value) if isinstance(value, tuple) else value)
        assert rows[f"`{key}`"] == f"`{shown}`"
