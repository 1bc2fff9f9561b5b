"""The command line documents itself: every command, option and exit code; and asking for help costs nothing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import nexus.cli
from contracts.documented_commands import commands_of, problems_of
from contracts.modules import PACKAGE, ROOT
from nexus import errors
from nexus.cli import COMMANDS, SHARED_MODULES
from nexus.cli._exit_codes import exit_code
from nexus.cli._options import ALL_OPTIONS, NexusGroup
from nexus.cli._sessions import SessionArgument

CLI_PAGE = ROOT / "docs" / "cli.md"
NOT_FOR_HELP = (
    "asyncio",
    "msgspec",
    "nexus.errors",
    "nexus.types.block",
    "prompt_toolkit",
    "rich",
    "toktok",
    "tiktoken",
    "apsw",
    "openai",
    "anthropic",
    "google.genai",
    "PIL",
    "yaml",
    "pluggy",
)
SHARED_OPTIONS = {"--workspace", "--ledger", "--json"}
COMMON_OPTIONS = {*SHARED_OPTIONS, "--tenant"}
MOST_COMMANDS = 29
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def command(name: str) -> click.Command:
    found = nexus.cli.cli.get_command(click.Context(nexus.cli.cli), name)
    assert found is not None
    return found


def section(name: str) -> str:
    """The text under the command's heading in the page on the command line."""
    found = re.search(rf"^## nexus {name}\n(.*?)(?=^## |\Z)", CLI_PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found, f"{CLI_PAGE.name} has no heading '## nexus {name}'"
    return found[1]


def common_section() -> str:
    """The text above the first command: what holds for all of them."""
    return CLI_PAGE.read_text("utf-8").partition("\n## nexus ")[0]


def test_the_list_of_commands_is_the_list_of_command_modules() -> None:
    modules = {path.stem.removesuffix("_command") for path in (PACKAGE / "cli").glob("*_command.py")}
    groups = [found for name in COMMANDS if isinstance(found := command(name), NexusGroup)]
    nested = {module for group in groups for module in group.modules.values() if "." not in module}
    assert {name for name in COMMANDS if name not in SHARED_MODULES} | nested == modules
    assert len(COMMANDS) <= MOST_COMMANDS


def test_a_command_has_its_section_in_the_docs_which_names_every_option_and_argument() -> None:
    common, missing = common_section(), list[str]()
    for top in COMMANDS:
        text = section(top)
        for name, found in every_command(command(top), top):
            for parameter in found.params:
                if isinstance(parameter, click.Option):
                    is_common = parameter.name == "session_option" or COMMON_OPTIONS & set(parameter.opts)
                    names = parameter.opts if name == top else parameter.opts[-1:]
                    missing += [f"nexus {name} {opt}" for opt in names if opt not in (common if is_common else text)]
                elif name == top and str(parameter.name).upper() not in text:
                    missing.append(f"nexus {name} {str(parameter.name).upper()}")
    assert missing == [], f"not in {CLI_PAGE.name}"


def test_the_docs_name_no_command_that_does_not_exist() -> None:
    assert set(re.findall(r"^## nexus (\S+)$", CLI_PAGE.read_text("utf-8"), re.MULTILINE)) <= set(COMMANDS)


def test_commands_in_the_text_and_tables_of_every_page_exist_with_their_options_and_arguments() -> None:
    wrong = [f"{page.name}: {text}" for page in PAGES for line in lines_of(page) for text in problems_of(line)]
    assert wrong == []


def lines_of(page: Path) -> list[str]:
    return list(commands_of(page.read_text("utf-8")))


def test_wrong_commands_in_pages_are_found() -> None:
    text = (
        "`nexus context TEXT -s NAME`, `nexus forget`, `nexus history NAME --nothing`, `nexus replay 1 -s main`\n\n"
        "## nexus session\n\n| command | does |\n|---|---|\n| `show NAME`, `gone NAME` | shows |\n"
    )
    assert [text for line in commands_of(text) for text in problems_of(line)] == [
        "nexus context TEXT -s NAME: 1 arguments, not 0 to 0",
        "nexus forget: no command forget",
        "nexus history NAME --nothing: no option --nothing",
        "nexus session gone NAME: no command gone",
    ]


def every_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for sub in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), sub)
            assert found is not None
            yield from every_command(found, f"{name} {sub}")


def test_every_command_with_a_session_takes_it_with_an_option() -> None:
    names = {"session", "source", "sessions"}
    lacking = [
        name
        for top in COMMANDS
        for name, found in every_command(command(top), top)
        if any(
            isinstance(param, SessionArgument) or (isinstance(param, click.Argument) and param.name in names)
            for param in found.params
        )
        and not any("--session" in param.opts and "-s" in param.opts for param in found.params)
    ]
    # `ledger import` takes a file named SOURCE.
    assert [name for name in lacking if name != "ledger import"] == []


def test_the_help_of_a_command_says_what_it_does_and_names_and_explains_every_option() -> None:
    wrong = list[str]()
    for name, found in [pair for top in COMMANDS for pair in every_command(command(top), top)]:
        ctx = click.Context(found, info_name=f"nexus {name}")
        ctx.meta[ALL_OPTIONS] = True
        shown = found.get_help(ctx)
        if not (found.help or "").strip():
            wrong.append(f"nexus {name} has no help")
        for parameter in found.params:
            if isinstance(parameter, click.Option):
                wrong += [f"nexus {name} --help lacks {option}" for option in parameter.opts if option not in shown]
                if not (parameter.help or "").strip().endswith("."):
                    wrong.append(f"the help of nexus {name} {parameter.opts} is no sentence: {parameter.help!r}")
            elif (parameter.metavar or str(parameter.name).upper()) not in shown:
                wrong.append(f"nexus {name} --help lacks {parameter.metavar or str(parameter.name).upper()}")
    assert wrong == []


def test_every_command_takes_workspace_ledger_and_json() -> None:
    lacking = {
        name: sorted(SHARED_OPTIONS - {option for parameter in command(name).params for option in parameter.opts})
        for name in COMMANDS
    }
    assert {name: options for name, options in lacking.items() if options} == {}


def test_the_short_text_of_the_list_is_one_sentence() -> None:
    assert {name: text for name, text in COMMANDS.items() if not text.endswith(".") or len(text) > 70} == {}


def test_help_lists_every_command_in_a_fresh_process_without_loading_anything_heavy() -> None:
    code = (
        "import sys\nfrom nexus.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print('LOADED', *[name for name in {NOT_FOR_HELP!r} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, loaded = ran.stdout.partition("LOADED")
    assert loaded.strip() == ""
    assert [name for name in COMMANDS if not re.search(rf"^  {name} ", shown, re.MULTILINE)] == []


def test_every_exit_code_is_in_the_help_and_in_the_docs() -> None:
    kinds = [
        value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.NexusError)
    ]
    codes = {0, 2, *(exit_code(kind) for kind in kinds)}
    shown = " ".join((nexus.cli.cli.help or "").split())
    page = CLI_PAGE.read_text("utf-8")
    for code in sorted(codes):
        assert re.search(rf"\b{code} \w+", shown.partition("Exit codes:")[2]), f"exit code {code} is not in --help"
        assert re.search(rf"^\|?\s*`?{code}`?\s*\|", page, re.MULTILINE), f"{CLI_PAGE.name} has no table row for {code}"
