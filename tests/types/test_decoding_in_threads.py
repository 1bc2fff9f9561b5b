"""Types that several threads decode into for the first time: msgspec alone crashes (0.22)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nexus"

PROGRAM = """
import sys, threading
import msgspec
import nexus.server.forms, nexus.services.messages, nexus.tokens.model_table
from nexus.types.decoding import decodable

ready = decodable if sys.argv[1] == "decodable" else lambda kind: kind
sys.setswitchinterval(1e-6)
kinds, barrier = [], threading.Barrier(6)

def gather(kind):
    for other in kind.__subclasses__():
        gather(other)
        if other.__module__.startswith("nexus."):
            kinds.append(other)

def decode():
    for kind in kinds:
        barrier.wait()
        try:
            msgspec.convert(dict.fromkeys(reversed(kind.__struct_encode_fields__)), ready(kind))
        except (msgspec.ValidationError, NameError, TypeError):
            pass  # names that only type checkers import, fields that are necessary

gather(msgspec.Struct)
assert len(kinds) > 200, len(kinds)
threads = [threading.Thread(target=decode) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("all decoded")
"""


def run(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=False, timeout=300
    )


def test_law_threads_may_decode_into_a_type_for_the_first_time_together() -> None:
    for _ in range(3):
        finished = run("decodable")
        assert (finished.returncode, finished.stdout) == (0, "all decoded\n"), finished.stderr


def test_law_finds_that_msgspec_alone_crashes() -> None:
    """If this fails with a newer msgspec, `decodable` may be unnecessary."""
    assert any(run("alone").returncode < 0 for _ in range(20))


PLAIN = {"Any", "Fields", "None", "bool", "bytes", "dict", "float", "int", "list", "msgspec", "object", "str", "tuple"}


def decoded_kinds(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the types that a module decodes into with msgspec."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function == "msgspec.convert" or function.endswith(".Decoder"):
            yield from node.args[-1:]
        elif function.endswith(".decode"):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "type")


def is_safe(kind: ast.expr) -> bool:
    names = {node.id for node in ast.walk(kind) if isinstance(node, ast.Name)}
    return names <= PLAIN or ast.unparse(kind).startswith("decodable(")


def unsafe_kinds(source: str) -> list[str]:
    return [ast.unparse(kind) for kind in decoded_kinds(ast.parse(source)) if not is_safe(kind)]


def test_every_type_is_made_decodable() -> None:
    """Except types that are made so where they are built, and one of a process with one thread."""
    found = {
        (path.relative_to(SOURCE).as_posix(), kind)
        for path in SOURCE.rglob("*.py")
        for kind in unsafe_kinds(path.read_text("utf-8"))
    }
    assert found == {
        ("ledger/codec.py", "_part_kind"),
        ("ledger/integrity/__init__.py", "_columns[kind]"),
        ("ledger/text_encoding.py", "decoder.type"),
        ("models/llama_process.py", "LlamaSettings"),
        ("types/decoding.py", "kind"),
    }


@pytest.mark.parametrize(
    "source", ["msgspec.convert(value, Form)", "json.decode(text, type=list[Form])", "x = msgspec.json.Decoder(Form)"]
)
def test_a_type_that_is_not_made_decodable_is_found(source: str) -> None:
    assert unsafe_kinds(source)
    assert not unsafe_kinds(source.replace("list[Form]", "Form").replace("Form", "decodable(Form)"))
