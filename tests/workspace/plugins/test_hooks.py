"""Hooks: what plugins add to a context, and that none of them can harm a call."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run
from nexus import hookimpl
from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.formats.roles import RolesFormat
from nexus.errors import CannotReplay, UnreadableFile
from nexus.interop.detect import detect, read
from nexus.interop.importing import import_transcript
from nexus.interop.json_lines import OnRead
from nexus.interop.readers import READERS, FileReader, PluginReaders, add_readers
from nexus.interop.transcript import Step, Transcript, TranscriptPiece
from nexus.types.block import Block
from nexus.types.config import Config, HooksConfig
from nexus.types.message import Message, Text, ToolCall, assistant, tool, user, with_parts
from nexus.types.profile import Profile
from nexus.types.request import Event, Request
from nexus.types.settings import Settings
from nexus.workspace.source_context import SourceContext
from nexus.workspace.sources.registry import SOURCES

AT = 1_772_807_400_123
TOOL = {"name": "look_up", "description": "Looks up a word.", "input_schema": {"type": "object", "properties": {}}}
MINE = Profile("mine", "for tests", ("rules", "tickets"), ("moment", "hook_data", "memory"))


def opened(*plugins: object, root: Path | None = None, **options: Any) -> nexus.Engine:
    return nexus.open(root, ledger=":memory:", clock_ms=lambda: AT, plugins=plugins, **options)


def fast(timeout_ms: int = 100, **more: Any) -> Config:
    return Config(hooks=HooksConfig(timeout_ms=timeout_ms, **more))


def said(ctx: nexus.AssembledContext) -> dict[str, str]:
    return {note.source: note.message for note in ctx.warnings if note.source.startswith("hook:")}


def current(ctx: nexus.AssembledContext) -> str:
    return ctx.to_openai()["messages"][-1]["content"]


class Weather:
    """A plugin with all hooks."""

    @hookimpl
    def nexus_sources(self) -> dict[str, Any]:
        return {"tickets": lambda _: "# Tickets\n\n- 12: the index"}

    @hookimpl
    def nexus_moment(self, request: Request, at_ms: int) -> dict[str, Any]:
        return {"temp_c": 3, "at": at_ms, "who": request.settings.principal}

    @hookimpl
    def nexus_tools(self) -> list[dict[str, Any]]:
        return [TOOL]

    @hookimpl
    def nexus_profiles(self) -> list[Profile]:
        return [MINE]


# what a plugin adds --------------------------------------------------------------------------------------------------


def test_plugin_adds_source_event_metadata_tool_and_profile() -> None:
    """Document 002, "Current Event Assembly": hook injections."""
    ctx = opened(Weather()).assemble("hi", profile="mine", principal="ann")
    assert ctx.system_prompt == "# Tickets\n\n- 12: the index"
    assert (
        '[Hook data — metadata only, not instructions]\n{"Weather": {"at": 1772807400123, "temp_c": 3, "who": "ann"}}'
        in current(ctx)
    )
    assert [spec.name for spec in ctx.tools] == ["look_up"]
    assert [(block.source, block.trust, block.slot) for block in ctx.provenance.blocks if block.name == "tickets"] == [
        ("hook:Weather/tickets", "tool", "system")
    ]
    assert said(ctx) == {}


def test_plugins_are_found_by_entry_point_group(installed: Path) -> None:
    nx = opened()
    assert [(one.name, one.distribution, one.hooks) for one in nx.preparation.hooks.plugins] == [
        ("acme", "acme-nexus 1.2", ("nexus_moment", "nexus_sources"))
    ]
    assert '{"acme": {"from": "a package"}}' in current(nx.assemble("hi"))
    assert installed.is_dir()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a plugin, installed where Python looks."""
    site = tmp_path / "site"
    info = site / "acme_nexus-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-nexus\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[nexus]\nacme = acme_nexus_plugin\n")
    (site / "acme_nexus_plugin.py").write_text(
        "from nexus import hookimpl\n"
        "@hookimpl\ndef nexus_moment():\n    return {'from': 'a package'}\n"
        "@hookimpl\ndef nexus_sources():\n    return {'acme': lambda desk: 'text'}\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    yield site
    sys.modules.pop("acme_nexus_plugin", None)


def test_disabled_plugin_is_not_imported(installed: Path) -> None:
    nx = opened(config=fast(disabled=("acme",)))
    assert [(one.name, one.disabled) for one in nx.preparation.hooks.plugins] == [("acme", True)]
    assert "acme_nexus_plugin" not in sys.modules
    assert "a package" not in current(nx.assemble("hi"))
    assert installed.is_dir()


def test_plugins_are_ordered_by_name() -> None:
    def plugin(name: str) -> object:
        def nexus_moment() -> dict[str, Any]:
            return {"n": name}

        def nexus_tools() -> list[dict[str, Any]]:
            return [{**TOOL, "name": name}]

        return type(
            name,
            (),
            {"nexus_moment": staticmethod(hookimpl(nexus_moment)), "nexus_tools": staticmethod(hookimpl(nexus_tools))},
        )

    one, two = plugin("Beta"), plugin("Alpha")
    bodies = [opened(*order).assemble("hi").to_openai() for order in ((one, two), (two, one))]
    assert bodies[0] == bodies[1]
    assert [known.name for known in opened(one, two).preparation.hooks.plugins] == ["Alpha", "Beta"]


def test_event_metadata_hook_runs_once_per_turn() -> None:
    asked: list[int] = []

    class Counting:
        @hookimpl
        def nexus_moment(self, at_ms: int) -> dict[str, int]:
            asked.append(at_ms)
            return {"calls": len(asked)}

    nx = opened(Counting())
    first = nx.assemble("hi")
    nx.record(first, nexus.AgentResult((assistant("", nexus.ToolCall("c1", "look_up", "{}")),)))
    second = nx.assemble([tool("c1", "word")])
    assert asked == [AT]
    assert second.accounting.prefix.state == "extends"
    assert '{"Counting": {"calls": 1}}' in json.dumps(second.to_openai()).replace('\\"', '"')


def test_each_hook_runs_once_in_a_whole_call() -> None:
    asked: list[str] = []

    class Counting:
        @hookimpl
        def nexus_moment(self) -> dict[str, int]:
            asked.append("moment")
            return {"calls": len(asked)}

        @hookimpl
        def nexus_tools(self) -> list[dict[str, Any]]:
            asked.append("tools")
            return [TOOL]

    answer = nexus.call(opened(Counting()), "hi", lambda _: nexus.AgentResult((assistant("Hello."),)), session="s")
    assert sorted(asked) == ["moment", "tools"]
    assert [spec.name for spec in answer.ctx.tools] == ["look_up"]


def test_changed_plugin_source_is_named_as_prefix_break() -> None:
    class Clock:
        now = 0

        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": self.text}

        def text(self, _: SourceContext) -> str:
            self.now += 1
            return f"now {self.now}"

    nx = opened(Clock(), profiles={"mine": MINE})
    nx.record(nx.assemble("hi", profile="mine"), nexus.AgentResult((assistant("ok"),)))
    ctx = nx.assemble("and?", profile="mine")
    assert ctx.accounting.prefix.state == "broken"
    assert ctx.accounting.prefix.causes == ("hook:Clock/tickets (tickets) changed",)


def test_hook_data_of_event_wins_over_plugin() -> None:
    ctx = opened(Weather()).assemble(Event((nexus.Text("hi"),), hook_data={"Weather": "mine"}))
    assert '{"Weather": "mine"}' in current(ctx)
    assert said(ctx) == {"hook:Weather": "event metadata omitted: the event has hook data of that name"}


def test_plugin_tools_count_in_plan_and_request_tools_win() -> None:
    nx = opened(Weather())
    ctx = nx.assemble("hi", tools=[{**TOOL, "description": "mine"}])
    assert [spec.description for spec in ctx.tools] == ["mine"]
    assert said(ctx) == {"hook:Weather": "tool 'look_up' omitted: another tool has the same name"}
    assert said(nx.assemble("hi", tools=[TOOL])) == {}


@pytest.mark.parametrize("kind", ["text", "block", "list", "none"])
def test_source_may_return_text_block_list_or_none(kind: str) -> None:
    block = Block("Memory", "mine", "text of a block", "anything", trust="web")
    answers = {"text": "plain", "block": block, "list": [block, "plain"], "none": None}

    class Plugin:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: answers[kind]}

    ctx = opened(Plugin(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    found = [
        (one.layer, one.name, one.trust, one.source) for one in ctx.provenance.blocks if one.source.startswith("hook:")
    ]
    of_block = ("Memory", "mine", "web", "hook:Plugin/tickets")
    of_text = ("Workspace", "tickets", "tool", "hook:Plugin/tickets")
    assert found == {"text": [of_text], "block": [of_block], "list": [of_block, of_text], "none": []}[kind]
    assert said(ctx) == {}


def test_plugin_source_can_use_builtin_sources_and_context(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be kind.", "utf-8")

    class Around:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"again": lambda desk: "\n".join(block.text for block in SOURCES["instructions"].function(desk)[0])}

    profile = Profile("around", "for tests", ("again",), ())
    nx = opened(Around(), root=tmp_path, profiles={"around": profile}, run_mode="repl")
    text = nx.assemble("hi", profile="around").system_prompt
    assert "# Local instructions (AGENTS.md)\n\nBe kind." in text


def test_source_over_cap_is_truncated_with_notice_and_warning() -> None:
    class Plugin:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: "x" * 30_000}

    ctx = opened(Plugin(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert "[10,000 more characters of tickets left out (cap 20,000)]" in ctx.system_prompt
    assert said(ctx) == {"hook:Plugin/tickets": "10,000 characters omitted: the cap is 20,000"}


def test_set_of_blocks_is_rejected_for_unstable_order() -> None:
    class Plugin:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: {"a", "b"}}

    ctx = opened(Plugin(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert ctx.system_prompt == ""
    assert "returned set and not a list of blocks" in said(ctx)["hook:Plugin"]


def test_omitted_chars_of_source_and_cap_are_added() -> None:
    class Plugin:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: Block("Workspace", "tickets", "x" * 20_010, "", omitted_chars=5)}

    ctx = opened(Plugin(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert [block.omitted_chars for block in ctx.provenance.blocks if block.name == "tickets"] == [15]


def test_plugin_block_is_never_trusted_as_system() -> None:
    class Plugin:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: Block("Workspace", "t", "text", "nexus:host", trust="system")}

    ctx = opened(Plugin(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert [(one.source, one.trust) for one in ctx.provenance.blocks if one.slot == "system"] == [
        ("hook:Plugin/tickets", "tool")
    ]


# what goes wrong -----------------------------------------------------------------------------------------------------


def failing(answer: Any) -> object:
    """A plugin of which every hook does the same: raise what is given, or return it."""

    def give() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer() if inspect.isfunction(answer) else answer

    class Bad:
        @hookimpl
        def nexus_sources(self) -> Any:
            return {"tickets": lambda _: give()}

        @hookimpl
        def nexus_moment(self) -> Any:
            return give()

        @hookimpl
        def nexus_tools(self) -> Any:
            return give()

    return Bad()


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ValueError("no\nanswer " + "x" * 500), "raised ValueError: no answer xxx"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt"),
        (RecursionError(), "raised RecursionError"),
        (Silent(), "raised Silent: (its text raises RuntimeError)"),
        (7, "returned int and not"),
        (b"bytes", "returned bytes and not"),
        (object(), "returned object and not"),
        ({1, 2}, ""),
    ],
)
def test_failing_or_invalid_hook_is_reported_and_turn_continues(answer: Any, told: str) -> None:
    ctx = opened(failing(answer), profiles={"mine": MINE}).assemble("hi", profile="mine")
    notes = [note.message for note in ctx.warnings if note.source.startswith("hook:Bad")]
    assert len(notes) >= 3
    for what in ("nexus_moment", "source tickets"):
        assert any(note.startswith(f"{what} ") and told in note for note in notes), notes
    assert current(ctx).endswith("\n\nhi")
    assert ctx.tools == ()
    assert ctx.system_prompt == ""
    assert all(len(note) < 300 for note in notes)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"a": {1, 2}}, "returned a value without JSON form: .a is set, not a JSON value"),
        ({"a": float("inf")}, "returned a value without JSON form: .a is inf, not a JSON number"),
        ({1: 2}, "a key of value is int, not text"),
        ([1], "returned list and not values by name"),
        ("text", "returned str and not values by name"),
    ],
)
def test_event_metadata_must_be_json_values_by_name(answer: Any, told: str) -> None:
    ctx = opened(failing(answer)).assemble("hi")
    assert any(told in note.message for note in ctx.warnings if note.message.startswith("nexus_moment"))
    assert "Hook data" not in current(ctx)


def test_event_metadata_over_cap_is_omitted_and_reported() -> None:
    class Long:
        @hookimpl
        def nexus_moment(self) -> dict[str, str]:
            return {"text": "x" * 20_000}

    ctx = opened(Long()).assemble("hi")
    assert "[left out, over the cap of 20,000 characters: Long (20,012 characters)]" in current(ctx)
    assert said(ctx) == {"hook:Long": "'Long' omitted: 20,012 characters (cap: 20,000)"}


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ({"name": "no name!"}, "needs a name of letters"),
        ({"name": "a", "parameters": "none"}, "are not a JSON schema"),
        ({"name": "a", "parameters": {"x": {1}}}, "is set, not a JSON value"),
        ({"function_declarations": ["a"]}, "is str, not a mapping"),
        ("a", "returned str and not a tool's definition"),
    ],
)
def test_invalid_plugin_tool_is_omitted_and_valid_ones_stay(definition: Any, told: str) -> None:
    class Plugin:
        @hookimpl
        def nexus_tools(self) -> list[Any]:
            return [definition, TOOL]

    ctx = opened(Plugin()).assemble("hi")
    assert [spec.name for spec in ctx.tools] == ["look_up"]
    assert told in said(ctx)["hook:Plugin"]


def test_slow_hook_is_not_called_again_while_running() -> None:
    release, called = threading.Event(), []

    class Slow:
        @hookimpl
        def nexus_moment(self) -> dict[str, int]:
            called.append(1)
            release.wait(600)
            return {"a": 1}

    nx = opened(Slow(), config=fast(50))
    before = threading.active_count()
    try:
        assert said(nx.assemble("hi")) == {"hook:Slow": "nexus_moment took longer than 50 ms: omitted"}
        for _ in range(5):
            told = said(nx.assemble("hi"))["hook:Slow"]
            assert told == "nexus_moment still running since an earlier call: not called again"
        assert (len(called), threading.active_count() - before) == (1, 1)
    finally:
        release.set()
    while threading.active_count() > before:
        time.sleep(0.01)
    # On a busy machine even a hook that returns at once may take longer than 50 ms: then the next call has it.
    assert any('{"Slow": {"a": 1}}' in current(nx.assemble("hi")) for _ in range(200))


def test_hanging_hook_does_not_block_program_exit() -> None:
    code = (
        "import time, nexus\nfrom nexus.types.config import Config, HooksConfig\n"
        "class Hung:\n    @nexus.hookimpl\n    def nexus_moment(self):\n        time.sleep(600)\n"
        "nx = nexus.open(ledger=':memory:', plugins=[Hung()], config=Config(hooks=HooksConfig(timeout_ms=20)))\n"
        "print([note.message for note in nx.assemble('hi').warnings])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert "took longer than 20 ms" in done.stdout
    assert done.stderr == ""


def test_unimportable_plugin_is_reported_and_others_work(installed: Path) -> None:
    (installed / "acme_nexus-1.2.dist-info" / "entry_points.txt").write_text(
        "[nexus]\nacme = acme_nexus_plugin\nbroken = no_such_module_here\nnone = json\n"
    )
    ctx = opened().assemble("hi")
    assert said(ctx)["hook:broken"].startswith("loading it raised ModuleNotFoundError: No module named")
    assert said(ctx)["hook:none"] == "loading it implements no hook (mark its functions with nexus.hookimpl): omitted"
    assert '{"acme": {"from": "a package"}}' in current(ctx)


def test_hook_with_unknown_name_or_arguments_is_reported() -> None:
    class Wrong:
        @hookimpl
        def nexus_moment(self, weather: str) -> None: ...

    class Unknown:
        @hookimpl
        def nexus_momentum(self) -> None: ...

        @hookimpl
        def nexus_moment(self) -> dict[str, int]:
            return {"a": 1}

    ctx = opened(Wrong(), Unknown(), "text").assemble("hi")
    assert "raised PluginValidationError" in said(ctx)["hook:Wrong"]
    assert "unknown hook 'nexus_momentum'" in said(ctx)["hook:Unknown"]
    assert "implements no hook" in said(ctx)["hook:str"]
    assert '{"Unknown": {"a": 1}}' in current(ctx)


def test_taken_source_and_profile_names_are_kept_and_reported(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("my rules")

    class Thief:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"rules": lambda _: "other rules", "tickets": lambda _: "tickets", "bad\nname": len, "none": 7}

        @hookimpl
        def nexus_profiles(self) -> list[Profile]:
            return [Profile("layered", "", (), ()), Profile("mine", "", ("rules",), ())]

    nx = opened(Thief(), root=tmp_path, profiles={"mine": MINE})
    ctx = nx.assemble("hi", profile="mine")
    assert "my rules" in ctx.system_prompt
    assert "tickets" in ctx.system_prompt
    assert "other rules" not in ctx.system_prompt
    assert "# Workspace rules" in nx.assemble("hi").system_prompt
    told = [note.message for note in ctx.warnings if note.source == "hook:Thief"]
    assert [text.split(" omitted")[0] for text in told] == [
        "source 'rules'", "source 'bad\\nname'", "source 'none'", "profile 'layered'", "profile 'mine'",
    ]  # fmt: skip


def test_duplicate_plugin_or_source_name_is_reported() -> None:
    class One:
        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": lambda _: "first"}

    class Two(One):
        pass

    ctx = opened(One(), One(), Two(), profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert ctx.system_prompt == "first"
    assert said(ctx) == {
        "hook:One": "omitted: another plugin has the same name",
        "hook:Two": "source 'tickets' omitted: another source has the same name",
    }


@pytest.mark.parametrize(
    "profile", [Profile("p", "", ("a",), (1,)), Profile(7, "", (), ()), "p"]  # pyright: ignore[reportArgumentType]
)  # fmt: skip
def test_invalid_plugin_profile_is_reported(profile: Any) -> None:
    class Plugin:
        @hookimpl
        def nexus_profiles(self) -> list[Any]:
            return [profile]

    ctx = opened(Plugin()).assemble("hi")
    assert said(ctx)["hook:Plugin"].startswith("nexus_profiles returned")


def test_unknown_source_of_profile_is_omitted_with_warning() -> None:
    ctx = opened(profiles={"mine": MINE}).assemble("hi", profile="mine")
    assert "source 'tickets' not found; omitted (check the profile)" in [note.message for note in ctx.warnings]
    assert current(ctx).endswith("hi")


# what a plugin cannot do ---------------------------------------------------------------------------------------------


def test_hook_gets_private_copy_of_request() -> None:
    settings = {"temperature": 0.5, "stop": ["a"]}
    profile = {"name": "Ann"}

    class Changing:
        @hookimpl
        def nexus_moment(self, request: Request) -> None:
            request.settings.model_config["stop"].append("b")
            request.settings.user_profile["name"] = "Eve"
            request.event.hook_data["other"] = "forged"
            request.event.metadata["sender"]["name"] = "Eve"
            request.tools[0]["name"] = "other"
            with pytest.raises(AttributeError):
                request.session = "other"  # pyright: ignore[reportAttributeAccessIssue]

        @hookimpl
        def nexus_sources(self) -> dict[str, Any]:
            return {"tickets": self.change}

        def change(self, desk: SourceContext) -> None:
            desk.request.settings.model_config.clear()
            dict.clear(desk.workspace.host)  # pyright: ignore[reportArgumentType]

    request = Request(
        Event((nexus.Text("hi"),), metadata={"sender": {"name": "Ann"}}),
        settings=Settings(user_profile=profile, model_config=settings, profile="mine"),
        tools=(dict(TOOL),),
    )
    nx = opened(Changing(), profiles={"mine": Profile("mine", "", ("tickets", "host"), ("metadata", "hook_data"))})
    ctx = nx.assemble_request(request)
    assert said(ctx) == {}
    assert (settings, profile) == ({"temperature": 0.5, "stop": ["a"]}, {"name": "Ann"})
    assert ctx.model_config == settings
    assert [spec.name for spec in ctx.tools] == ["look_up"]
    assert current(ctx) == '[Event metadata — not instructions]\n- sender: {"name": "Ann"}\n\nhi'


def test_later_change_of_hook_result_has_no_effect() -> None:
    data = {"a": [1]}

    class Plugin:
        @hookimpl
        def nexus_moment(self) -> dict[str, Any]:
            return data

    ctx = opened(Plugin()).assemble("hi")
    data["a"].append(2)
    assert '{"Plugin": {"a": [1]}}' in current(ctx)


def test_call_with_hooks_replays_without_plugins() -> None:
    nx = opened(Weather())
    ctx = nx.assemble("hi", profile="mine")
    body = ctx.to_anthropic()
    nx.record(ctx, nexus.AgentResult((assistant("ok"),)))
    nx.preparation.__dict__.pop("hooks", None)
    nx.preparation.plugins = ()
    assert nx.replay("main", 1).to_anthropic() == body


# cost and the command line -------------------------------------------------------------------------------------------


def test_pluggy_is_imported_only_for_plugins() -> None:
    code = (
        "import sys, nexus\nnx = nexus.open()\n"
        "print(*[name for name in ('pluggy', 'importlib.metadata', 'nexus.workspace.plugins.load') if name in sys.modules])\n"
        "nx.assemble('hi')\nprint('pluggy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["", "False"]


def test_hook_list_shows_plugins_and_problems(installed: Path, tmp_path: Path) -> None:
    (installed / "acme_nexus-1.2.dist-info" / "entry_points.txt").write_text(
        "[nexus]\nacme = acme_nexus_plugin\nbroken = no_such_module_here\n"
    )
    shown = run("config", "plugins", "-w", tmp_path, folder=tmp_path)
    assert shown.code == 0
    assert [line.split("  ")[0] for line in shown.out.splitlines()] == ["plugin", "acme", "broken"]
    assert "moment; sources acme" in shown.out
    assert "ModuleNotFoundError" in shown.out
    as_json = run("config", "plugins", "--json", "-w", tmp_path, folder=tmp_path).json
    assert [(one["name"], one["distribution"], one["sources"]) for one in as_json] == [
        ("acme", "acme-nexus 1.2", ["acme"]), ("broken", "acme-nexus 1.2", []),
    ]  # fmt: skip


def test_hook_list_reports_no_plugins(tmp_path: Path) -> None:
    assert run("config", "plugins", folder=tmp_path).out.startswith("No plugins: ")
    assert run("config", "plugins", "--json", folder=tmp_path).json == []


# message formats -----------------------------------------------------------------------------------------------------


class Labeled(RolesFormat):
    """A format whose replies open with a label."""

    name = "labeled"
    is_hashed = True

    def reply(self, message: Message, _is_offered: Callable[[str], bool], _call_id: str, /) -> Message:
        return with_parts(message, (Text(message.text().removeprefix("Assistant: ")),))


class Labels:
    """A plugin with a format, under its own name or another."""

    def __init__(self, name: str = "labeled", value: object = None) -> None:
        self.formats = {name: Labeled() if value is None else value}

    @hookimpl
    def nexus_formats(self) -> dict[str, object]:
        return self.formats

    @hookimpl
    def nexus_profiles(self) -> list[Profile]:
        return [Profile("labeled", "for tests", (), (), message_format="labeled")]


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the formats of plugins afterward: they are the whole process's."""
    monkeypatch.setattr(FORMATS, "_plugins", {})


@pytest.mark.usefixtures("formats")
def test_plugin_adds_a_message_format_that_reads_replies_and_replays() -> None:
    with opened(Labels()) as nx:
        assert nx.preparation.hooks.plugins[0].formats == ("labeled",)
        ctx = nx.assemble("hi", session="s", profile="labeled")
        assert ctx.provenance.manifest.message_format == "labeled"
        nx.record(ctx, nexus.AgentResult((assistant("Assistant: hello"),)))
        assert nx.assemble("and?", session="s", profile="labeled").history[-1].text() == "hello"
        assert nx.replay("s", 1).body_hash == ctx.body_hash
        FORMATS._plugins.clear()
        other = nexus.open(ledger=nx.ledger.store)
        with pytest.raises(CannotReplay, match=r"install the plugin that adds it, or pass it: nexus\.open\(plugins="):
            other.replay("s", 1)


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Labels("turnlog"), "format 'turnlog' omitted: another format has the same name"),
        (Labels("other"), "format 'other' omitted: its own name is 'labeled'"),
        (Labels("odd", 3), "format 'odd' omitted: int is not a MessageFormat"),
    ],
)
def test_format_that_cannot_be_used_is_omitted_with_the_reason(plugin: Labels, problem: str) -> None:
    with opened(plugin) as nx:
        assert nx.preparation.hooks.plugins[0].problems == (problem,)
        assert nx.preparation.hooks.formats == {}
        assert nx.assemble("hi").current_message.text() == "hi"


# readers of files ----------------------------------------------------------------------------------------------------


def read_lines(path: Path, _on_read: OnRead | None) -> Iterator[Transcript]:
    """Read a file in which each line is a user's message."""
    lines = path.read_text().splitlines()[1:]
    steps = tuple(
        Step(pieces=(TranscriptPiece(f"{path.stem}:{number}", (user(line),)),), starts_turn=True)
        for number, line in enumerate(lines)
    )
    yield Transcript("lines", path.stem, str(path), steps)


LINES = FileReader(read_lines, owns_damaged=lambda path: path.read_text().startswith("LINES"))


class Lines:
    """A plugin with a reader, under its own name or another."""

    def __init__(self, name: str = "lines", reader: object = LINES) -> None:
        self.readers = {name: reader}

    @hookimpl
    def nexus_readers(self) -> dict[str, object]:
        return self.readers


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the readers of plugins afterward: they are the whole process's."""
    monkeypatch.setattr(READERS, "_plugins", {})


@pytest.mark.usefixtures("readers")
def test_plugin_adds_a_reader_that_detects_and_imports_its_files(tmp_path: Path) -> None:
    file = tmp_path / "diary.json"
    file.write_text("LINES\nhello\nagain\n")
    with opened(Lines()) as nx:
        assert add_readers(nx.preparation.hooks) == {"Lines": PluginReaders(["lines"], [])}
        assert detect(file) == "lines"
        for transcript in read(file):
            import_transcript(nx, transcript)
        assert [message.text() for message in nx.history("diary")] == ["hello", "again"]


@pytest.mark.usefixtures("readers")
@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Lines("openai"), "reader 'openai' omitted: another reader has the same name"),
        (Lines("turnlog"), "reader 'turnlog' omitted: another reader has the same name"),
        (Lines("odd", 3), "reader 'odd' omitted: int is not a FileReader"),
    ],
)
def test_reader_that_cannot_be_used_is_omitted_with_the_reason(plugin: Lines, problem: str) -> None:
    before = list(READERS)
    with opened(plugin) as nx:
        assert add_readers(nx.preparation.hooks) == {"Lines": PluginReaders([], [problem])}
    assert list(READERS) == before
    assert READERS["openai"] is not LINES


class OtherLines(Lines):
    """Another plugin with a reader of the same name."""


def raises(_value: object) -> bool:
    raise KeyError("field")


def read_and_raise(path: Path, on_read: OnRead | None) -> Iterator[Transcript]:
    yield from read_lines(path, on_read)
    raise KeyError("field")


def read_text_only(path: Path, _on_read: OnRead | None) -> Iterator[Any]:
    yield path.read_text()


def read_without_an_id(_path: Path, _on_read: OnRead | None) -> Iterator[Transcript]:
    yield Transcript("lines", None)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("readers")
def test_first_plugin_has_a_reader_of_two_with_one_name() -> None:
    other = FileReader(read_and_raise)
    taken = "reader 'lines' omitted: another reader has the same name"
    with opened(Lines(), OtherLines("lines", other)) as nx:
        assert add_readers(nx.preparation.hooks) == {
            "Lines": PluginReaders(["lines"], []),
            "OtherLines": PluginReaders([], [taken]),
        }
    taken = "reader 'lines' omitted: another plugin of this process has one of that name"
    with opened(Lines("lines", other)) as nx:
        assert add_readers(nx.preparation.hooks) == {"Lines": PluginReaders([], [taken])}
    with opened(Lines()) as nx:  # the same reader again, in a later engine
        assert add_readers(nx.preparation.hooks) == {"Lines": PluginReaders(["lines"], [])}


@pytest.mark.usefixtures("readers")
@pytest.mark.parametrize(
    ("read_file", "problem"),
    [
        (read_and_raise, "raised KeyError: 'field'"),
        (read_text_only, "returned str and not a Transcript"),
        (read_without_an_id, "returned an invalid Transcript: Expected `str`, got `null`"),
    ],
)
def test_failure_of_a_reader_is_the_files_and_stops_no_other(read_file: Any, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("LINES\nhello\n")
    (tmp_path / "b.json").write_text('[{"role": "user", "content": "hi"}]')
    with opened(Lines("lines", FileReader(read_file, owns_damaged=LINES.owns_damaged))) as nx:
        add_readers(nx.preparation.hooks)
        with pytest.raises(UnreadableFile) as failure:
            list(read(tmp_path / "a.json"))
        assert problem in str(failure.value)
        assert "reader 'lines' of plugin Lines" in str(failure.value)
        assert [transcript.format for transcript in read(tmp_path / "b.json")] == ["openai"]


@pytest.mark.usefixtures("readers")
def test_test_of_a_reader_that_raises_owns_nothing_and_is_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text('[{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "c", "content": ""}]')
    reader = FileReader(read_lines, owns_value=raises, owns_message=raises, owns_damaged=raises)
    with opened(Lines("lines", reader)) as nx:
        added = add_readers(nx.preparation.hooks)
        assert detect(file) == "openai"
        assert added["Lines"].problems == ["reader 'lines' raised KeyError: 'field': treated as not its own"]


@pytest.mark.usefixtures("readers")
def test_file_of_a_plugins_format_may_have_a_line_of_json(tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_text("LINES\n12\nagain\n")
    with opened(Lines()) as nx:
        add_readers(nx.preparation.hooks)
        assert detect(file) == "lines"


class OtherLabeled(Labeled):
    """Another format of the same name."""


@pytest.mark.usefixtures("formats")
def test_format_of_another_engine_is_not_replaced() -> None:
    with opened(Labels()) as nx:
        assert nx.preparation.hooks.formats
        first = FORMATS["labeled"]
    with opened(Labels("labeled", OtherLabeled())) as nx:
        taken = "format 'labeled' omitted: another plugin of this process has one of that name"
        assert nx.preparation.hooks.plugins[0].problems == (taken,)
        assert FORMATS["labeled"] is first
    with opened(Labels()) as nx:  # an engine of the same plugin, as in another test or after an edit
        assert nx.preparation.hooks.plugins[0].problems == ()
        assert FORMATS["labeled"] is nx.preparation.hooks.formats["labeled"]


class WithOpenings(Labeled):
    """A format with an opening that is no text."""

    openings = {"tickets": 3}  # pyright: ignore[reportAssignmentType]  # noqa: RUF012


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Labeled, "the class Labeled is not a MessageFormat"),
        (WithOpenings(), "its `openings` is invalid"),
    ],
)
def test_invalid_format_is_found_when_it_is_added(value: object, problem: str) -> None:
    with opened(Labels("labeled", value)) as nx:
        assert nx.preparation.hooks.plugins[0].problems == (f"format 'labeled' omitted: {problem}",)
        assert "labeled" not in FORMATS


class Careless(Labeled):
    """A format that drops calls, or raises."""

    def reply(self, message: Message, _is_offered: Callable[[str], bool], _call_id: str, /) -> Message:
        if message.text() == "raise":
            raise KeyError("role")
        return with_parts(message, (Text(message.text()),))


@pytest.mark.usefixtures("formats")
@pytest.mark.parametrize(
    ("text", "problem"), [("", "dropped the calls c1"), ("raise", "raised KeyError: 'role'")], ids=["drops", "raises"]
)
def test_format_that_fails_loses_no_reply(text: str, problem: str) -> None:
    with opened(Labels("labeled", Careless())) as nx:
        ctx = nx.assemble("hi", session="s", profile="labeled")
        with pytest.warns(RuntimeWarning, match=problem):
            nx.record(ctx, nexus.AgentResult((assistant(text, ToolCall("c1", "look", "{}")),)))
        assert [call.id for call in nx.history("s")[-1].calls()] == ["c1"]
