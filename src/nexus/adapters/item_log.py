"""Lists of JSON items that a framework keeps, such as a session's events, in the documents of a ledger.

Each append is a document of its own, so that a long list costs no more than a short one, and two programs that append at
once lose nothing. A list's name is a path of parts. Documents have the principal whose data they are, for erasure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from nexus.errors import HeadMoved
from nexus.ledger.documents import ADAPTER, PAGE
from nexus.ledger.sessions import Document
from nexus.ledger.store import DocumentStore

_DIGITS = 12


class ListInfo(Struct, frozen=True):
    """One list: its path, and when it was last appended to, in milliseconds since 1970."""

    path: tuple[str, ...]
    updated_ms: int


class ItemLog:
    """The lists of one framework. Lists whose paths have different parts are never mixed."""

    def __init__(self, store: DocumentStore, framework: str) -> None:
        self._store = store
        self._kind = f"{ADAPTER}{framework}"
        self._newest = dict[str, int]()
        """Number of the newest document of each list that was appended to here."""

    def append(self, path: Sequence[str], items: Sequence[Any], principal: str = "") -> None:
        """Append items to a list, in one document. Raises BadReference for what is not JSON, and LedgerError."""
        if not items:
            return
        prefix = _prefix(path)
        body = {"principal": principal, "path": [*path], "items": [*items]}
        number = self._newest.get(prefix)
        if number is None:
            number = max((_number(document) for document in self._documents(prefix)), default=0)
        while True:
            number += 1
            with suppress(HeadMoved):  # another program has appended too
                self._store.put_document(self._kind, f"{prefix}{number:0{_DIGITS}}", body, expected_number=0)
                break
        self._newest[prefix] = number

    def read(self, path: Sequence[str]) -> list[Any]:
        """Return the items of a list in order; none if there is no list."""
        return [item for document in self._documents(_prefix(path)) for item in document.body["items"]]

    def lists(self, path: Sequence[str]) -> list[ListInfo]:
        """Return the lists whose paths begin with these parts."""
        newest = dict[tuple[str, ...], int]()
        for document in self._documents(_prefix(path)):
            list_path = tuple(document.body["path"])
            newest[list_path] = max(document.at_ms, newest.get(list_path, 0))
        return [ListInfo(list_path, updated_ms) for list_path, updated_ms in newest.items()]

    def delete(self, path: Sequence[str]) -> None:
        """Delete the lists whose paths begin with these parts."""
        for document in [*self._documents(_prefix(path))]:
            self._store.delete_document(self._kind, document.name)

    def _documents(self, prefix: str) -> Iterator[Document]:
        after = prefix
        while page := self._store.documents(self._kind, after=after, limit=PAGE):
            for document in page:
                if not document.name.startswith(prefix):
                    return
                yield document
            after = page[-1].name


def _prefix(path: Sequence[str]) -> str:
    return "".join(f"{quote(part, safe='', errors='surrogatepass')}/" for part in path)


def _number(document: Document) -> int:
    return int(document.name.rpartition("/")[2])
