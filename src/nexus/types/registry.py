"""Imports by name, at the first use: public names, and rows that rooms above the core add to tables.

The core names none of these rooms. `nexus` lists their modules of registrations, which are imported when a table is first
read. A row may be the name of a value, `module:attribute`; it is imported when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from threading import RLock
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_registrations: list[str] = []
_lock = RLock()


def add_registrations(*modules: str) -> None:
    """Name modules that add rows to registries when they are imported."""
    _registrations.extend(modules)


class Registry(Mapping[str, T], Generic[T]):
    """A table by name, in the order of its names."""

    def __init__(self, rows: Mapping[str, T | str]) -> None:
        self._rows: dict[str, T | str] = dict(rows)
        self._imported: dict[str, T] = {}
        self._plugins: dict[str, tuple[str, T]] = {}

    def add(self, name: str, row: T | str) -> None:
        """Add a row, or the name `module:attribute` of one. Raises ValueError if the name has another row."""
        if self._rows.setdefault(name, row) != row:
            raise ValueError(f"{name!r} is registered twice")

    def add_of_plugin(self, name: str, row: T, definition: object) -> bool:
        """Add a plugin's row for the whole process; return False if the name is another definition's.

        `definition` is the function or object that the row stands for. Where the same function or class, by its module
        and name, is defined again, its new row replaces the old one.
        """
        owner = _qualified_name(definition)
        if name in self.own_names or self._plugins.setdefault(name, (owner, row))[0] != owner:
            return False
        self._plugins[name] = (owner, row)
        return True

    @property
    def own_names(self) -> frozenset[str]:
        """The names of Nexus's rows, which plugins cannot have."""
        return frozenset(self._rows_of_nexus())

    def __getitem__(self, name: str) -> T:
        row: T | str | None = self._imported.get(name)
        if row is None:
            row = self._rows.get(name)
        if row is None:
            row = self._rows_of_nexus().get(name)
        if row is None:
            return self._plugins[name][1]
        if isinstance(row, str):
            module, _, attribute = row.partition(":")
            row = self._imported[name] = cast("T", getattr(import_module(module), attribute))
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._rows_of_nexus(), *self._plugins}))

    def __len__(self) -> int:
        return len({*self._rows_of_nexus(), *self._plugins})

    def _rows_of_nexus(self) -> dict[str, T | str]:
        """Return Nexus's rows, after every registration."""
        with _lock:
            while _registrations:
                module = _registrations[0]
                import_module(module)
                if module in _registrations:  # the import may have read a registry itself
                    _registrations.remove(module)
        return self._rows


def _qualified_name(definition: object) -> str:
    """Return module and name of a function, or of an object's class."""
    if hasattr(definition, "__qualname__"):
        function_or_type = definition
    else:
        function_or_type = type(definition)
    return f"{function_or_type.__module__}.{getattr(function_or_type, '__qualname__', '')}"


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Name of the package.
        modules: Names, divided by spaces, by the module that has them. `as` gives one another name: `open_engine as open`.
    """
    places: dict[str, tuple[str, str]] = {}
    for module, names in modules.items():
        words = names.replace(" as ", ":").split()
        for word in words:
            original, _, name = word.partition(":")
            places[name or original] = (module, original)

    def __getattr__(name: str) -> Any:  # noqa: N807 - the package's hook of this name
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = places[name]
        return getattr(import_module(module), original)

    return __getattr__
