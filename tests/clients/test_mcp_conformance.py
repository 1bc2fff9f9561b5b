"""The official conformance runner of MCP on the server over HTTP: every scenario for servers passes, or cannot apply."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from adapters.running_mcp import running_http
from clients.conformance import RUNNER, install_runner, node

APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "dns-rebinding-protection",
    "server-sse-polling",
    "server-sse-multiple-streams",
)
"""The last two find no sessions of HTTP and check nothing more: each request is complete in itself."""

NOT_APPLICABLE = {
    "logging-set-level": "no log messages are sent to clients, which the newest version of the protocol deprecates",
    "completion-complete": "no prompts and templates, so nothing to complete",
    **dict.fromkeys(
        (
            "tools-call-simple-text",
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "tools-call-with-logging",
            "tools-call-error",
            "tools-call-with-progress",
            "json-schema-2020-12",
        ),
        "calls a tool that only the runner's own example server has",
    ),
    **dict.fromkeys(
        ("tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"),
        "the server asks neither the client's model nor its user",
    ),
    **dict.fromkeys(
        ("resources-read-text", "resources-read-binary", "resources-templates-read"),
        "reads a resource that only the runner's own example server has",
    ),
    **dict.fromkeys(("resources-subscribe", "resources-unsubscribe"), "the only resource never changes"),
    **dict.fromkeys(
        (
            "prompts-list",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
        ),
        "no prompts are offered",
    ),
}
"""Scenarios with the reason why they do not apply."""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    install_runner()


def run(*words: str) -> str:
    done = subprocess.run([node(), str(RUNNER), *words], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


def test_each_scenario_for_servers_is_listed() -> None:
    listed = run("list").partition("Client scenarios")[0]
    assert {*re.findall(r"^  - (\S+)", listed, re.MULTILINE)} == {*APPLICABLE, *NOT_APPLICABLE}


@pytest.mark.parametrize("scenario", APPLICABLE)
def test_server_passes_the_scenario(scenario: str, tmp_path: Path) -> None:
    with running_http(tmp_path, needs_token=False) as url:
        printed = run("server", "--url", url, "--scenario", scenario)
    assert re.search(r"^Passed: (\d+)/\1, 0 failed", printed, re.MULTILINE), printed[-2_000:]
