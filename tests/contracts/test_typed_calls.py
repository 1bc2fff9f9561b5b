"""Calls in a user's program under a strict type checker: right ones pass, and each wrong one is an error in its line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """\
import nexus
from nexus.engine import available_tokens

nx = nexus.open(ledger=":memory:", model="gpt-4o", timezone="UTC")
tools = nexus.ToolRegistry()


def send(ctx: nexus.AssembledContext) -> object:
    return ctx.to_openai()


async def asend(ctx: nexus.AssembledContext) -> object:
    return ctx.to_openai()


ctx = nx.assemble("Hi", session="main", model="gpt-4o", tools=tools, budget=9_000, role="worker", task="Look.")
answer = nexus.call(nx, "Hi", send, session="main", images=[], persona="night", wait=2.0)
turn = nx.begin("Hi", session="main", skills=["git"])
turn.assemble(budget=4_000)
outcome: nexus.CompactionOutcome = nx.compact("main", focus="names", model="gpt-4o")
tokens: int = available_tokens(nx, session="main", model="gpt-4o")


@tools.tool(name="look", roles="worker")
def look(path: str) -> str:
    return path


async def main() -> None:
    async with nexus.open_async(ledger=":memory:", policy=nexus.Policy(), config=nexus.Config()) as anx:
        await nexus.acall(anx, "Hi", asend, session="main", model="gpt-4o")
        await (await anx.begin("Hi", model="gpt-4o")).assemble(model="gpt-5")
        await anx.assemble("Hi", modle="gpt-4o")  # wrong
        await anx.begin("Hi", sesion="main")  # wrong
        await nexus.acall(anx, "Hi", send)  # wrong


try:
    nx.history("main")
except nexus.NoSuchSession as error:
    print(error)

nexus.open(ledgr=":memory:")  # wrong
nexus.open_async(timezone=None)  # wrong
nx.assemble("Hi", sesion="main")  # wrong
nx.assemble("Hi", budget="9000")  # wrong
nx.assemble("Hi", role="boss")  # wrong
nx.plan("main", modle="gpt-4o")  # wrong
nx.compact("main", focsu="names")  # wrong
available_tokens(nx, sesion="main")  # wrong
nexus.call(nx, "Hi", send, compcat=False)  # wrong
turn.assemble(available_tokens=4_000)  # wrong
tools.tool(rolse="worker")  # wrong
nexus.no_such_name  # wrong
"""


def test_wrong_calls_are_errors_of_a_strict_type_checker(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "reportUnusedExpression": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checker = [Path(sys.executable).with_name("basedpyright"), "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*checker, "-p", tmp_path], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {item["range"]["start"]["line"]: item["message"] for item in found if item["severity"] == "error"}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines()) if line.endswith("# wrong")}
    assert errors.keys() - wrong == set(), errors
    assert wrong - errors.keys() == set(), "calls that the type checker accepts"
