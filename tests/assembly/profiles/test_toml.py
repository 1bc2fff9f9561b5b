"""A profile's TOML text: what it makes, and the one error that names file, key and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.builtin import LAYERED, REPL
from nexus.assembly.profiles.user.toml import MOST_SOURCES, build_profile, parse_profile
from nexus.errors import BadConfig, bad_profile
from nexus.types.profile import Profile, Share
from nexus.workspace.sources.registry import SOURCES
from support.errors import has_code

FILE = "~/.nexus/profiles/mine.toml"


def made(text: str, base: Profile | None = None) -> Profile:
    return build_profile(parse_profile(text, FILE), "mine", base, SOURCES, FILE)


def refused(text: str, base: Profile | None = LAYERED) -> tuple[str, str]:
    """The key and what was expected there; the text names both, and the file."""
    with pytest.raises(BadConfig, check=has_code("bad_profile")) as raised:
        made(text, base)
    error = raised.value
    assert error.file == FILE
    assert str(error).startswith(f"{FILE}: {error.key}" if error.key else FILE)
    return error.key, error.expected


def test_two_lists_make_a_profile() -> None:
    found = made('what = "rules alone"\nsystem = ["rules"]\ncurrent = ["moment", "fed:ticket"]\n')
    assert found == Profile("mine", "rules alone", ("rules",), ("moment", "fed:ticket"))
    assert made('system = ["rules"]').current == ()


def test_extends_copies_the_base_profile() -> None:
    assert made('extends = "layered"', LAYERED) == Profile(
        "mine",
        "layered, changed",
        LAYERED.system,
        LAYERED.current,
        LAYERED.shares,
        LAYERED.preamble,
        LAYERED.message_format,
    )


def test_without_applies_before_insertions() -> None:
    text = """
    extends = "repl"
    without = ["surroundings", "mood"]
    before = { configurations = "soul" }
    after = { skills = ["rules", "tools_guide"], date_time = "mood" }
    """
    found = made(text, REPL)
    assert found.system == ("soul", "configurations", "active_skills", "skills", "rules", "tools_guide")
    assert found.current == ("date_time", "mood", "metadata", "hook_data", "constraints", "attachments")
    assert (found.summary, found.session_header, found.freeze_system_prompt) == ("context", True, True)


def test_summary_session_header_and_freeze_can_be_set() -> None:
    text = 'extends = "layered"\nsummary = "context"\nsays_start = true\nfrozen = true'
    found = made(text, LAYERED)
    assert (found.summary, found.session_header, found.freeze_system_prompt) == ("context", True, True)
    found = made('extends = "repl"\nsummary = "previous"\nsays_start = false\nfrozen = false', REPL)
    assert (found.summary, found.session_header, found.freeze_system_prompt) == ("previous", False, False)
    assert refused('extends = "repl"\nsummary = "mine"', REPL) == ("summary", "one of previous, context")
    expected = "false with the message format tagged, which shows one turn only"
    assert refused('extends = "repl"\nform = "tagged"', REPL) == ("session_header", expected)
    assert refused('system = []\nform = "tagged"\nsays_start = true', None) == ("says_start", expected)


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("what", "description", '"rules alone"'),
        ("form", "message_format", '"turnlog"'),
        ("says_start", "session_header", "true"),
        ("frozen", "freeze_system_prompt", "true"),
        ("ahead", "preamble", '["soul"]'),
    ],
)
def test_old_and_new_keys_make_the_same_profile(old: str, new: str, value: str) -> None:
    lists = 'system = ["rules"]\ncurrent = ["moment"]'
    assert made(f"{old} = {value}\n{lists}") == made(f"{new} = {value}\n{lists}") != made(lists)
    assert refused(f"{old} = {value}\n{new} = {value}\n{lists}", None)[0] == old


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("what = 1", "what"),
        ("description = 1", "description"),
        (f'what = "{"x" * 400}"\nsystem = []', "what"),
        (f'description = "{"x" * 400}"\nsystem = []', "description"),
        ('form = "html"\nsystem = []', "form"),
        ('message_format = "html"\nsystem = []', "message_format"),
        ("says_start = 1", "says_start"),
        ("session_header = 1", "session_header"),
        ("frozen = 1", "frozen"),
        ("freeze_system_prompt = 1", "freeze_system_prompt"),
        ("ahead = [1]", "ahead[0]"),
        ("preamble = [1]", "preamble[0]"),
        ('system = []\nahead = ["rulez"]', "ahead"),
        ('system = []\npreamble = ["rulez"]', "preamble"),
        ('system = []\nahead = ["rules", "rules"]', "ahead"),
        ('system = []\npreamble = ["rules", "rules"]', "preamble"),
    ],
)
def test_error_names_the_key_that_the_file_uses(text: str, key: str) -> None:
    assert refused(text, None)[0] == key


def test_source_moves_with_without_and_after() -> None:
    found = made('extends = "layered"\nwithout = ["memory"]\nafter = { skills = "memory" }', LAYERED)
    assert found.system[found.system.index("skills") + 1] == "memory"
    assert "memory" not in found.current


def test_lists_and_shares_replace_those_of_base() -> None:
    base = Profile("base", "", ("rules",), ("moment",), (Share("Memory", ceiling=0.2), Share("Session", 0.1, 0.9)))
    found = made('extends = "base"\nsystem = ["soul"]\nform = "turnlog"\nshares.Session.floor = 0.3', base)
    assert found.system == ("soul",)
    assert found.current == ("moment",)
    assert found.message_format == "turnlog"
    assert found.shares == (Share("Memory", ceiling=0.2), Share("Session", 0.3, 0.9))


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ('system = "rules"', "system", "a list, not text"),
        ("system = [1]", "system[0]", "text, not a number"),
        ("what = 1", "what", "text"),
        ('extends = ["layered"]', "extends", "text, not a list"),
        ('form = "html"\nsystem = []', "form", FORMATS),
        ('sytem = ["rules"]', "sytem", "one of the keys description, extends, message_format, summary"),
        ('name = "mine"\nsystem = []', "name", "one of the keys"),
        ("system = []\nshares = 1", "shares", "a table, not a number"),
        ("system = []\nshares.Memory.roof = 1", "shares.Memory.roof", "one of the keys floor, ceiling"),
        ('system = []\nshares.Memory.ceiling = "all"', "shares.Memory.ceiling", "a number, not text"),
        ("system = []\nshares.Memory.ceiling = true", "shares.Memory.ceiling", "a number"),
        ("system = []\nshares.Memmory.ceiling = 1", "shares.Memmory", "one of the keys Workspace, Persona"),
        ("system = []\nshares.Memory.ceiling = 1.5", "shares.Memory.ceiling", "a share from 0 to 1, not 1.5"),
        ("system = []\nshares.Memory.ceiling = -0.1", "shares.Memory.ceiling", "a share from 0 to 1"),
        ("system = []\nshares.Memory.ceiling = nan", "shares.Memory.ceiling", "a share from 0 to 1, not nan"),
        ("system = []\nshares.Session.floor = inf", "shares.Session.floor", "a share from 0 to 1"),
        ("system = []\nshares.Session = {floor = 0.5, ceiling = 0.1}", "shares.Session.floor", "no more than"),
        ("system = []\nshares.Memory.floor = 0.5", "shares.Memory.floor", "no floor except for the layer Session"),
        ('system = ["rulez"]', "system", "names of sources, not 'rulez'; did you mean rules?"),
        ('current = ["fed:A B"]', "current", "`fed:` and a name of small letters"),
        ('current = ["fed:"]', "current", "`fed:` and a name of small letters"),
        ('current = ["fed:mood"]', "current", "'mood', which is a source itself"),
        ('system = ["rules", "rules"]', "system", "each source once; 'rules' is repeated"),
        ('system = ["rules"]\ncurrent = ["rules"]', "system", "each source once"),
        ('extends = "layered"\nafter = { moment = "rules" }', "system", "each source once; 'rules'"),
        ('extends = "layered"\nwithout = ["friends"]', "without", "not 'friends'"),
        ('extends = "layered"\nafter = { friends = "rules" }', "after", "listed sources (subagent, rules"),
        ('extends = "layered"\nbefore = { rules = 3 }', "before[...]", "text or a list, not a number"),
        ('without = ["rules"]', "", "`extends`, or the lists"),
        ("", "", "`extends`, or the lists"),
        ("system = [", "", "TOML"),
        ('system = ["a\0b"]', "", "TOML"),
        ("[[system]]\nname = 1", "system[0]", "text, not a table"),
        ('what = "' + "x" * 400 + '"\nsystem = []', "what", "at most 300 characters"),
        ("a." * 5_000 + "b = 1", "", "TOML"),
        ("x = " + "[" * 50_000, "", "TOML"),
    ],
)
def test_invalid_file_is_an_error_that_names_key_and_expectation(text: str, key: str, expected: Any) -> None:
    found = refused(text)
    if expected == "TOML":
        assert found[1].startswith("TOML") or "one of the keys" in found[1]
        return
    if expected is FORMATS:  # other tests of this process may have added some
        expected = f"one of {', '.join(FORMATS)}"
    assert found[0] == key
    assert expected in found[1]


def test_ten_thousand_sources_are_one_short_error() -> None:
    names = ", ".join(f'"s{number}"' for number in range(10_000))
    assert refused(f"system = [{names}]") == ("system", f"at most {MOST_SOURCES} sources, not 10,000")
    key, expected = refused(f'extends = "layered"\nafter = {{ rules = [{names}] }}')
    assert (key, expected.startswith("at most")) == ("system", True)
    _, expected = refused('system = ["' + "x" * 50_000 + '"]')
    assert len(expected) < 1_000


def test_error_shortens_long_keys() -> None:
    assert len(str(bad_profile(*(FILE, *refused("k" * 50_000 + " = 1"))))) < 500


@given(st.text(max_size=200))
def test_any_text_builds_or_raises_bad_profile(text: str) -> None:
    try:
        made(text, LAYERED)
    except BadConfig as error:
        assert error.file == FILE


@given(
    st.lists(st.sampled_from(sorted(SOURCES)), unique=True, max_size=20),
    st.integers(0, 20),
)
def test_order_of_sources_is_kept(names: list[str], cut: int) -> None:
    system, current = names[:cut], names[cut:]
    listed = [", ".join(f'"{name}"' for name in some) for some in (system, current)]
    found = made(f"system = [{listed[0]}]\ncurrent = [{listed[1]}]")
    assert (found.system, found.current) == (tuple(system), tuple(current))
