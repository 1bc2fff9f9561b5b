"""Check of the declared types and ranges of a record's columns. Pure.

A page that was written to another page's position contains rows of other tables, and a text file may contain anything.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from nexus.ledger.records import EntryRecord, KeyRecord, MessageRow, Record

_Int: Any = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MESSAGES: Any = list[tuple[tuple(_Int if kind is int else kind for kind in get_args(MessageRow))]]  # pyright: ignore[reportInvalidTypeArguments]
_STORED: dict[Any, Any] = {
    int: _Int, int | None: _Int | None, list[MessageRow]: _MESSAGES, list[KeyRecord]: list[tuple[str, bytes]]
}  # fmt: skip
_columns: dict[type, Any] = {}


def fits(record: Record) -> bool:
    """Return True if all columns of a record, its messages and its keys have storable values."""
    kind = type(record)
    if kind not in _columns:
        hints = get_type_hints(kind)
        _columns[kind] = tuple[tuple(_STORED.get(hints[name], hints[name]) for name in kind.__struct_fields__)]  # pyright: ignore[reportInvalidTypeArguments]
    values: tuple[Any, ...] = msgspec.structs.astuple(record)
    if isinstance(record, EntryRecord):
        values = (*values[:-1], [msgspec.structs.astuple(key) for key in record.keys])
    try:
        msgspec.convert(values, _columns[kind])
    except msgspec.ValidationError:
        return False
    return True
