"""Names of keyword arguments: a wrong one is an error of the public function that was called, never ignored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.engine import Engine, EngineOptions, available_tokens, session_label
from nexus.engine.overflow_recovery import recover
from nexus.tools import ToolOptions
from nexus.types.settings import CallArguments, Settings, SettingsChanges
from support.errors import has_code

NX = nexus.open(ledger=":memory:")
REQUEST_NAMES = sorted(CallArguments.__annotations__)
VALID_NAMES = {*REQUEST_NAMES, "session", "images", "focus", "plan", "share", "trigger", "progress", "compact", "wait"}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "assemble": lambda **names: NX.assemble("x", **names),
    "begin": lambda **names: NX.begin("x", **names),
    "plan": lambda **names: NX.plan("main", **names),
    "compact": lambda **names: NX.compact("main", **names),
    "available_tokens": lambda **names: available_tokens(NX, **names),
    "current_turn": lambda **names: NX.current_turn("main", **names),
    "session_label": lambda **names: session_label(NX, "main", **names),
    "call": lambda **names: nexus.call(NX, "x", lambda _: None, **names),
    "acall": lambda **names: asyncio.run(nexus.acall(nexus.AsyncEngine(NX), "x", _send, **names)),
    "recover": lambda **names: recover(NX, NX.assemble("x"), ValueError(), lambda _: None, **names),
}


async def _send(_: nexus.AssembledContext) -> None: ...


@pytest.mark.parametrize("name", FUNCTIONS)
def test_misspelt_argument_names_function_and_nearest_argument(name: str) -> None:
    with pytest.raises(
        nexus.errors.BadSetting,
        match=rf"^{name}\(\) has no argument 'modle' \(did you mean 'model'\?\)$",
        check=has_code("unknown_argument"),
    ):
        FUNCTIONS[name](modle="gpt-4o")


def test_misspelt_argument_of_open_names_nearest_argument() -> None:
    with pytest.raises(
        nexus.errors.BadSetting,
        match=r"^open\(\) has no argument 'ledgr' \(did you mean 'ledger'\?\)",
        check=has_code("unknown_argument"),
    ):
        nexus.open(ledgr=":memory:")  # type: ignore[call-arg]
    with pytest.raises(
        nexus.errors.BadSetting,
        match=r"^open_async\(\) has no argument 'zzz' \(its arguments: ",
        check=has_code("unknown_argument"),
    ):
        nexus.open_async(zzz=4)  # type: ignore[call-arg]


def test_swapped_letters_are_recognized_before_nearer_names() -> None:
    with pytest.raises(nexus.errors.BadSetting, match="did you mean 'model'", check=has_code("unknown_argument")):
        nexus.open(modle="gpt-4o")  # type: ignore[call-arg]


def test_argument_of_another_function_is_rejected() -> None:
    with pytest.raises(
        nexus.errors.BadSetting,
        match=r"^available_tokens\(\) .*did you mean 'session'",
        check=has_code("unknown_argument"),
    ):
        FUNCTIONS["available_tokens"](sesion="main")
    with pytest.raises(
        nexus.errors.BadSetting,
        match=r"^available_tokens\(\) has no argument 'images'",
        check=has_code("unknown_argument"),
    ):
        FUNCTIONS["available_tokens"](images=())
    with pytest.raises(
        nexus.errors.BadSetting, match=r"^user\(\) .*did you mean 'source'", check=has_code("unknown_argument")
    ):
        nexus.user("Hi", sorce="hook")  # type: ignore[call-arg]


@given(st.sampled_from([*FUNCTIONS]), st.text(min_size=1, max_size=30))
def test_every_other_name_is_rejected_without_internal_names(function: str, name: str) -> None:
    if name in VALID_NAMES:
        return
    with pytest.raises(nexus.errors.BadSetting) as raised:
        FUNCTIONS[function](**{name: 1})
    assert raised.value.code == "unknown_argument"
    assert str(raised.value).startswith(f"{function}() has no argument {name!r}")


def test_python_errors_of_open_name_the_public_function() -> None:
    with pytest.raises(TypeError, match=r"^open\(\) takes"):
        nexus.open("a", "b")  # type: ignore[misc]


def test_engine_options_are_the_arguments_of_the_engine() -> None:
    named = {name for name, one in inspect.signature(Engine).parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert set(EngineOptions.__annotations__) == named | set(SettingsChanges.__annotations__)


def test_each_setting_is_a_keyword_argument() -> None:
    assert set(SettingsChanges.__annotations__) == set(Settings.__struct_fields__)


def test_tool_options_are_the_arguments_of_register() -> None:
    parameters = inspect.signature(nexus.ToolRegistry.register).parameters
    assert set(ToolOptions.__annotations__) == {n for n, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


def test_no_public_function_takes_unnamed_keyword_arguments() -> None:
    functions = [getattr(nexus, name) for name in nexus.__all__]
    classes = [one for one in functions if inspect.isclass(one)]
    functions += [member for one in classes for member in vars(one).values()]
    loose = [
        one.__qualname__
        for one in functions
        if inspect.isfunction(one) and not one.__name__.startswith("_")
        for parameter in inspect.signature(one).parameters.values()
        if parameter.kind is parameter.VAR_KEYWORD and not str(parameter.annotation).startswith(("Unpack[", "P."))
    ]
    assert loose == []
