"""Which profile a name stands for: ready ones, a program's, files of the user and of a workspace, plugins'; and hostile files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus import hookimpl
from nexus.assembly.profiles.builtin import LAYERED, PROFILES
from nexus.assembly.profiles.user.registry import MOST_EXTENDED
from nexus.engine.analysis.replay import ReplayOverrides
from nexus.errors import BadConfig, NotFound
from nexus.types.profile import Profile
from nexus.workspace.files.reader import STEP_NS
from support.errors import has_code
from workspace.sources.gathering import put, told, write

RULES = 'what = "rules alone"\nsystem = ["rules"]\ncurrent = ["moment"]\n'
SOUL = 'what = "soul alone"\nsystem = ["soul"]\ncurrent = ["moment"]\n'
Open = Callable[..., nexus.Engine]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write(tmp_path / "home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "agent", AGENTS="Be exact.", SOUL="Calm.")


@pytest.fixture
def opened(home: Path, root: Path) -> Open:
    def open_(**options: Any) -> nexus.Engine:
        return nexus.open(root, home=home, **{"ledger": ":memory:", **options})

    return open_


def mine(folder: Path, text: str, name: str = "mine.toml") -> Path:
    """A file of the user's own folder, or of a workspace's `.nexus`."""
    return put(folder / "profiles" / name, text)


def reply(text: str = "ok") -> nexus.AgentResult:
    return nexus.AgentResult((nexus.assistant(text),))


def system(nx: nexus.Engine, name: str = "mine") -> str:
    return nx.assemble("hi", profile=name).system_prompt


# where a name leads ------------------------------------------------------------------------------------------------


def test_changed_user_file_applies_to_next_call(home: Path, opened: Open) -> None:
    path = mine(home, RULES)
    with opened() as nx:
        assert system(nx) == "# Workspace rules\n\nBe exact."
        path.write_text(SOUL)
        assert system(nx) == "# Soul\n\nCalm."
        path.unlink()
        with pytest.raises(
            NotFound,
            match="profiles: bare, layered, repl, tagged, tagged_stable, turnlog, workspace",
            check=has_code("unknown_profile"),
        ):
            system(nx)


def test_user_profiles_are_found_without_workspace(home: Path) -> None:
    mine(home, RULES)
    with nexus.open(home=home) as nx:
        assert nx.assemble("hi", profile="mine").provenance.manifest.profile == "mine"


def test_workspace_file_never_replaces_user_profile(home: Path, root: Path, opened: Open) -> None:
    mine(root / ".nexus", SOUL)
    with opened() as nx:
        assert system(nx) == "# Soul\n\nCalm."
    mine(home, RULES)
    with opened() as nx:
        ctx = nx.assemble("hi", profile="mine")
        assert ctx.system_prompt == "# Workspace rules\n\nBe exact."
        said = told(ctx.warnings)[".nexus/profiles/mine.toml"]
        assert said.startswith("not used: ")
        assert said.endswith("profiles/mine.toml has the same name and comes first")


@pytest.mark.parametrize("place", ["home", "root/.nexus"])
def test_file_named_like_builtin_profile_is_unused_with_warning(
    tmp_path: Path, root: Path, opened: Open, place: str
) -> None:
    folder = tmp_path / place.replace("root", root.name)
    mine(folder, SOUL, "layered.toml")
    with opened() as nx:
        ctx = nx.assemble("hi")
        assert "Be exact." in ctx.system_prompt
        assert [one.message for one in ctx.warnings] == [
            "not used: a built-in profile has the same name and comes first"
        ]


def test_toml_wins_over_python_with_warning(home: Path, opened: Open) -> None:
    mine(home, RULES)
    mine(home, "raise SystemExit", "mine.py")
    with opened() as nx:
        warnings = nx.assemble("hi", profile="mine").warnings
    assert [one.source.endswith("profiles/mine.py") for one in warnings] == [True]


class Theirs:
    @hookimpl
    def nexus_profiles(self) -> list[Profile]:
        return [Profile("mine", "a plugin's", ("soul",), ()), Profile("other", "a plugin's", ("soul",), ())]


def test_plugin_profiles_rank_between_user_and_workspace(home: Path, root: Path, opened: Open) -> None:
    mine(home, RULES)
    mine(root / ".nexus", RULES, "other.toml")
    with opened(plugins=[Theirs()]) as nx:
        own, other = nx.assemble("hi", profile="mine"), nx.assemble("hi", profile="other")
    assert own.system_prompt == "# Workspace rules\n\nBe exact."
    assert "profile not used" in told(own.warnings)["plugin Theirs"]
    assert other.system_prompt == "# Soul\n\nCalm."
    assert ".nexus/profiles/other.toml" in told(other.warnings)


def test_program_profiles_may_be_values_or_files_and_rank_first(home: Path, tmp_path: Path, opened: Open) -> None:
    mine(home, SOUL)
    elsewhere = put(tmp_path / "elsewhere" / "any.toml", RULES)
    with opened(profiles={"mine": elsewhere, "value": Profile("value", "", ("rules",), ())}) as nx:
        assert system(nx) == system(nx, "value") == "# Workspace rules\n\nBe exact."
    with (
        opened(profiles={"layered": elsewhere}) as nx,
        pytest.raises(BadConfig, match="is a built-in profile", check=has_code("bad_profile")),
    ):
        nx.assemble("hi")
    with (
        opened(profiles={"mine": tmp_path / "nowhere.toml"}) as nx,
        pytest.raises(BadConfig, match="No such file", check=has_code("bad_profile")),
    ):
        system(nx)
    with pytest.raises(
        BadConfig, match=r"profiles\.mine: expected a Profile or its file, not int", check=has_code("bad_profile")
    ):
        opened(profiles={"mine": 3})


def test_profile_name_is_never_a_path(home: Path, root: Path, opened: Open) -> None:
    ran = root / "ran"
    program = put(root / "evil.py", f"import os\nos.mkdir({str(ran)!r})\n")
    mine(home, RULES)
    with opened() as nx:
        for name in (str(program), "../evil", "evil.py", "../../agent/evil.py", "mine.toml", "MINE", "a\0b", "."):
            with pytest.raises(NotFound, check=has_code("unknown_profile")):
                system(nx, name)
    assert not ran.exists()


# Python files --------------------------------------------------------------------------------------------------------


PROGRAM = """
from msgspec.structs import replace
from nexus.assembly.profiles.builtin import BARE

def tickets(desk):
    return "# Tickets\\n\\n- 12"

sources = {"tickets": tickets}
profile = replace(BARE, name="whatever", description="with tickets", system=("tickets",))
"""


def test_user_python_file_is_run_and_may_add_sources(home: Path, opened: Open) -> None:
    path = mine(home, PROGRAM, "mine.py")
    with opened() as nx:
        ctx = nx.assemble("hi", profile="mine")
        assert ctx.system_prompt == "# Tickets\n\n- 12"
        assert ctx.provenance.manifest.profile == "mine"
        assert [(one.source, one.trust) for one in ctx.provenance.blocks if one.slot == "system"] == [
            ("hook:mine.py/tickets", "tool")
        ]
        path.write_text(PROGRAM.replace("- 12", "- 13"))
        assert system(nx) == "# Tickets\n\n- 13"
        mine(home, 'extends = "mine"\nbefore = { tickets = "soul" }', "more.toml")
        assert system(nx, "more") == "# Soul\n\nCalm.\n\n# Tickets\n\n- 13"


def test_unchanged_python_file_is_run_once(home: Path, tmp_path: Path, opened: Open) -> None:
    count = tmp_path / "count"
    mine(home, f"import os\nos.makedirs(f'{count}' + '/' + str(os.urandom(8).hex()))\n{PROGRAM}", "mine.py")
    with opened() as nx:
        for _ in range(3):
            system(nx)
    assert len(list(count.iterdir())) == 1


def test_workspace_python_file_is_not_run(root: Path, opened: Open) -> None:
    ran = root / "ran"
    mine(root / ".nexus", f"import os\nos.mkdir({str(ran)!r})\n{PROGRAM}", "mine.py")
    with opened() as nx:
        with pytest.raises(
            NotFound,
            match=r"\.nexus/profiles/mine\.py is not run: Python files count in your",
            check=has_code("unknown_profile"),
        ):
            system(nx)
        with pytest.raises(NotFound, check=has_code("unknown_profile")) as unknown:
            system(nx, "another")
        assert "mine" not in str(unknown.value), "what is not run is not offered"
        rows, _ = nx.profiles.entries()
        assert [(row.name, row.problem[:7]) for row in rows if row.kind == "workspace"] == [("mine", "not run")]
    assert not ran.exists()
    with opened(profiles={"mine": root / ".nexus" / "profiles" / "mine.py"}) as nx:
        assert system(nx) == "# Tickets\n\n- 12"
    assert ran.exists()


def test_files_count_as_users_when_folders_are_the_same(root: Path) -> None:
    mine(root / ".nexus", PROGRAM, "mine.py")
    with nexus.open(root, ledger=":memory:", home=root / ".nexus") as nx:
        assert system(nx) == "# Tickets\n\n- 12"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0", "raised ZeroDivisionError: division by zero, line 1"),
        ("\n\ndef", "raised SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import nexus.nothing", "ModuleNotFoundError"),
        ("profile = 3", "profile: expected a nexus.types.profile.Profile"),
        ("", "profile: expected a nexus.types.profile.Profile"),
        ("from nexus.types.profile import Profile\nprofile = Profile('', '', 3, ())", "returned an invalid Profile"),
        ("from nexus.types.profile import Profile\nprofile = Profile('', '', ('rulez',), ())", "did you mean rules"),
        (
            "from nexus.types.profile import Profile\nprofile = Profile('', '', (), (), message_format='html')",
            "message_format: expected one of ",
        ),
        (
            "from nexus.types.profile import Profile\nprofile = Profile('', '', (), ())\nsources = 3",
            "functions by name",
        ),
        ("x = '\ud800'".encode("utf-8", "surrogatepass"), "not UTF-8"),
        (b"\0", "raised"),
    ],
)
def test_python_file_without_valid_profile_is_an_error(home: Path, opened: Open, text: str | bytes, said: str) -> None:
    path = mine(home, "", "mine.py")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with opened() as nx:
        for _ in range(2):
            with pytest.raises(BadConfig, check=has_code("bad_profile")) as raised:
                system(nx)
            assert said in str(raised.value)
        path.write_text(PROGRAM)
        assert system(nx) == "# Tickets\n\n- 12"
        path.write_text("1/0")
        for _ in range(2):
            with pytest.raises(BadConfig, match="ZeroDivisionError", check=has_code("bad_profile")):
                system(nx)


def test_failing_or_duplicate_source_of_python_file_is_reported(home: Path, opened: Open) -> None:
    text = PROGRAM.replace('return "# Tickets\\n\\n- 12"', "return 1/0")
    mine(home, text.replace("sources = {", "sources = {'rules': tickets, "), "mine.py")
    with opened() as nx:
        ctx = nx.assemble("hi", profile="mine")
    said = told(ctx.warnings)
    assert "ZeroDivisionError" in said["hook:mine.py"]
    assert any("another source has the same name" in text for text in said.values())


# hostile files -------------------------------------------------------------------------------------------------------


def test_broken_file_affects_only_its_own_name(home: Path, opened: Open) -> None:
    mine(home, 'system = ["rulez"]')
    mine(home, RULES, "fine.toml")
    with opened() as nx:
        assert system(nx, "fine") == "# Workspace rules\n\nBe exact."
        assert "Be exact." in nx.assemble("hi").system_prompt
        with pytest.raises(
            BadConfig,
            match=r"profiles/mine\.toml: system: expected names of sources, not 'rulez'",
            check=has_code("bad_profile"),
        ):
            system(nx)


def test_broken_user_file_does_not_fall_back_to_workspace(home: Path, root: Path, opened: Open) -> None:
    mine(home, "system = 3")
    mine(root / ".nexus", SOUL)
    with opened() as nx, pytest.raises(BadConfig, check=has_code("bad_profile")):
        system(nx)


def test_workspace_profile_link_outside_is_rejected(root: Path, tmp_path: Path, opened: Open) -> None:
    outside = put(tmp_path / "outside" / "mine.toml", RULES)
    folder = root / ".nexus" / "profiles"
    folder.mkdir(parents=True)
    (folder / "mine.toml").symlink_to(outside)
    with (
        opened() as nx,
        pytest.raises(
            BadConfig, match="expected a file inside the workspace, not a link", check=has_code("bad_profile")
        ),
    ):
        system(nx)
    (folder / "mine.toml").unlink()
    folder.rmdir()
    folder.symlink_to(outside.parent)
    with (
        opened() as nx,
        pytest.raises(
            BadConfig, match="expected a file inside the workspace, not a link", check=has_code("bad_profile")
        ),
    ):
        system(nx)


def test_user_profile_may_be_a_link(home: Path, tmp_path: Path, opened: Open) -> None:
    (home / "profiles").mkdir()
    (home / "profiles" / "mine.toml").symlink_to(put(tmp_path / "dotfiles" / "mine.toml", RULES))
    with opened() as nx:
        assert system(nx) == "# Workspace rules\n\nBe exact."


def test_special_or_large_file_is_an_error_without_waiting(root: Path, opened: Open) -> None:
    folder = root / ".nexus" / "profiles"
    folder.mkdir(parents=True)
    (folder / "folder.toml").mkdir()
    os.mkfifo(folder / "pipe.toml")
    (folder / "nowhere.toml").symlink_to(folder / "nothing")
    (folder / "circle.toml").symlink_to(folder / "circle.toml")
    (folder / "huge.toml").write_text(RULES + "#" * 200_000)
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with (folder / "sparse.toml").open("wb") as stream:
        stream.truncate(10_000_000_000)
    with opened() as nx:
        for name in ("folder", "pipe", "nowhere", "circle", "huge", "binary", "sparse"):
            with pytest.raises(
                BadConfig, match=rf"{name}\.toml: expected a readable text file", check=has_code("bad_profile")
            ):
                system(nx, name)
        rows = [row for row in nx.profiles.entries()[0] if row.kind == "workspace"]
        assert len(rows) == 7
        assert all(row.problem for row in rows)


def test_circular_extends_is_an_error_that_shows_the_circle(home: Path, opened: Open) -> None:
    mine(home, 'extends = "b"', "a.toml")
    mine(home, 'extends = "c"', "b.toml")
    mine(home, 'extends = "a"', "c.toml")
    mine(home, 'extends = "self"', "self.toml")
    with opened() as nx:
        with pytest.raises(
            BadConfig, match=r"c\.toml: extends: expected no circle: a → b → c → a", check=has_code("bad_profile")
        ):
            system(nx, "a")
        with pytest.raises(BadConfig, match="self → self", check=has_code("bad_profile")):
            system(nx, "self")


def test_long_extends_chain_is_an_error(home: Path, opened: Open) -> None:
    for number in range(1_000):
        mine(home, f'extends = "p{number + 1}"', f"p{number}.toml")
    mine(home, RULES, "p1000.toml")
    with opened() as nx:
        with pytest.raises(
            BadConfig, match=f"at most {MOST_EXTENDED} profiles that extend one another", check=has_code("bad_profile")
        ):
            system(nx, "p0")
        assert system(nx, f"p{1000 - MOST_EXTENDED}") == "# Workspace rules\n\nBe exact."


def test_user_profile_cannot_extend_workspace_profile(home: Path, root: Path, opened: Open) -> None:
    mine(root / ".nexus", SOUL, "theirs.toml")
    mine(home, 'extends = "theirs"')
    mine(home, RULES, "base.toml")
    mine(root / ".nexus", 'extends = "base"\nafter = { rules = "soul" }', "more.toml")
    with opened() as nx:
        with pytest.raises(BadConfig, match="extends: expected the name of a profile", check=has_code("bad_profile")):
            system(nx)
        assert system(nx, "more") == "# Workspace rules\n\nBe exact.\n\n# Soul\n\nCalm."


def test_invalid_profile_file_names_are_reported(home: Path, opened: Open) -> None:
    for name in ("Mine.toml", "a b.toml", "x" * 80 + ".toml", "line\nbreak.py"):
        mine(home, RULES, name)
    for name in ("notes.md", ".hidden.toml", "mine.toml~"):
        mine(home, RULES, name)
    with opened() as nx:
        rows, warned = nx.profiles.entries()
    assert [row.kind for row in rows] == ["ready"] * len(PROFILES)
    assert len(warned) == 4
    assert not any("\n" in one.source for one in warned)


def test_large_profile_folder_is_read_in_part(home: Path, opened: Open) -> None:
    (home / "profiles").mkdir()
    for number in range(3_000):
        (home / "profiles" / f"p{number}.toml").touch()
    with opened() as nx:
        assert len(nx.profiles.files.names()[0]) == 1_000


# everywhere that a profile is named ----------------------------------------------------------------------------------


def test_call_replays_after_its_profile_file_changed_or_vanished(home: Path, opened: Open) -> None:
    path = mine(home, RULES)
    with opened() as nx:
        sent = nx.assemble("hi", session="main", profile="mine", blocks={"mood": "calm"})
        nx.record(sent, reply())
        for change in (lambda: path.write_text(SOUL), lambda: path.write_text("system = ["), path.unlink):
            change()
            again = nx.replay("main", 1)
            assert again.to_anthropic() == sent.to_anthropic()
            assert nx.explain("main", 1).lines
            assert nx.what_if("main", 1, ReplayOverrides(budget=5_000)).system_prompt == sent.system_prompt


def test_changed_profile_file_is_named_as_prefix_break(home: Path, opened: Open) -> None:
    path = mine(home, RULES)
    with opened() as nx:
        nx.record(nx.assemble("hi", session="main", profile="mine"), reply())
        path.write_text(RULES.replace('["rules"]', '["rules", "soul"]'))
        broken = nx.assemble("more", session="main", profile="mine").accounting.prefix
    assert (broken.state, broken.causes) == ("broken", ("SOUL.md (soul) is new",))


def test_plan_compact_explain_and_what_if_use_custom_profiles(home: Path, opened: Open) -> None:
    mine(home, RULES)
    mine(home, PROGRAM, "program.py")
    with opened() as nx:
        for number in range(12):
            nx.record(nx.assemble(f"{number} " + "word " * 300, session="main", profile="mine"), reply("yes " * 200))
        assert nx.plan("main", profile="mine", budget=3_000) is not None
        assert nx.compact("main", profile="mine", budget=3_000)
        assert nx.explain("main", 1).lines
        assert nx.what_if("main", 1, ReplayOverrides(profile="mine")).system_prompt == "# Workspace rules\n\nBe exact."
        assert nx.what_if("main", 1, ReplayOverrides(profile="program")).system_prompt == "# Tickets\n\n- 12"
        with pytest.raises(NotFound, check=has_code("unknown_profile")):
            nx.what_if("main", 1, ReplayOverrides(profile="nobody"))


def test_warm_call_opens_profile_file_once(home: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mine(home, RULES)
    time.sleep(STEP_NS / 1e9)  # until then another change could have the same time
    opens: list[str] = []
    with opened() as nx:
        real = os.open

        def counted(name: Any, *more: Any, **given: Any) -> int:
            opens.append(str(name))
            return real(name, *more, **given)

        monkeypatch.setattr(os, "open", counted)
        for _ in range(5):
            system(nx)
    assert sum(name.endswith("mine.toml") for name in opens) == 1


def test_builtin_profiles_are_immutable() -> None:
    assert LAYERED.message_format == "roles"
    with nexus.open() as nx:
        assert [row.name for row in nx.profiles.entries()[0]] == sorted(PROFILES)
