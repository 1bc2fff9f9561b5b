"""What `import nexus` gives: a small sorted list of names, each importable and explained, at no cost until used."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.resources import files

import pytest

import nexus

HEAVY = (
    "apsw",
    "toktok",
    "tiktoken",
    "click",
    "rich",
    "yaml",
    "PIL",
    "pluggy",
    "openai",
    "anthropic",
    "google.genai",
    "asyncio",
)


def test_the_public_names_are_sorted_and_none_is_there_twice() -> None:
    assert list(nexus.__all__) == sorted(set(nexus.__all__))


def test_every_public_name_can_be_imported_and_has_a_docstring() -> None:
    own = {name: (inspect.getdoc(getattr(nexus, name)) or "").strip() for name in nexus.__all__}
    # A struct without a docstring gets its signature as one.
    assert [name for name, text in own.items() if not text or text.startswith(f"{name}(")] == []


def test_every_public_method_of_a_public_class_has_a_docstring() -> None:
    silent = [
        f"{name}.{one}"
        for name in nexus.__all__
        if inspect.isclass(getattr(nexus, name))
        for one, member in vars(getattr(nexus, name)).items()
        if not one.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod)))
        and not inspect.getdoc(member)
    ]
    assert silent == []


def test_the_list_of_public_names_is_complete() -> None:
    assert set(nexus.__all__) == set(nexus._MODULES)
    assert set(dir(nexus)) == {*nexus.__all__, "__version__"}


def test_a_name_that_is_not_public_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        nexus.no_such_name  # noqa: B018 - reading it is the test


def test_every_error_is_a_nexus_error_and_in_the_drawn_tree() -> None:
    from nexus import errors

    raised = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    kinds = [kind for kind in raised if issubclass(kind, nexus.NexusError)]
    assert kinds == raised
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in kinds if kind.__name__ not in drawn] == [], "not in the drawn tree"


def test_errors_that_public_functions_name_are_public() -> None:
    from nexus import errors

    public = [getattr(nexus, name) for name in nexus.__all__]
    members = [member for one in public if inspect.isclass(one) for member in vars(one).values()]
    texts = [inspect.getdoc(one) or "" for one in (*public, *members) if not isinstance(one, str)]
    named = {word for text in texts for word in re.findall(r"[A-Z]\w+", text) if hasattr(errors, word)}
    assert named - {*nexus.__all__, "Any", "Iterable", "Mapping", "Sequence"} == set()


def test_importing_nexus_loads_nothing_heavy() -> None:
    code = f"import sys, nexus; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_package_says_that_it_is_typed() -> None:
    assert files("nexus").joinpath("py.typed").is_file()
