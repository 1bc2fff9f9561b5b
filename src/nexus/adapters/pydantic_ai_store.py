"""Pydantic AI: a conversation store in the ledger, for pydantic-ai-slim 2.66 and newer.

store = NexusConversationStore(nexus.open(ledger="ledger.db"))
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

import nexus
from nexus.adapters.calls import async_engine
from nexus.errors import HeadMoved

CONVERSATION = "adapter:pydantic-ai:conversation"
ENTRY = "adapter:pydantic-ai:entry"
"""Kinds of documents."""

TYPES: dict[str, TypeAdapter[Any]] = {
    CONVERSATION: TypeAdapter(ConversationRecord),
    ENTRY: TypeAdapter(ConversationEntry),
}


class NexusConversationStore(ConversationStore):
    """Keeps the conversations of Pydantic AI in a ledger, also for several processes. A record's scope is its principal.

    A deleted conversation leaves an empty document with its id. Its messages are deleted, except those that a fork has.
    """

    def __init__(self, nx: nexus.Engine | nexus.AsyncEngine) -> None:
        self.nx = async_engine(nx)
        self.documents = self.nx.engine.ledger.store

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation; None if there is none."""
        return await self.nx.run(lambda: self._document(CONVERSATION, conversation_id)[0])

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return records, the newest first."""
        records = [record for record in await self.nx.run(self._records) if scope is None or record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry of a message. Raises KeyError."""
        return await self.nx.run(self._entry, entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to one, or the last of them. Raises KeyError."""
        return await self.nx.run(lambda: [*islice(self._path(head_id), limit)][::-1])

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries. Raises ConversationConflict if another writer came first."""
        await self.nx.run(self._write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation. Raises ConversationConflict if another writer came first."""
        await self.nx.run(self._delete, conversation_id, expected_revision)

    def _write(self, record: ConversationRecord, entries: Sequence[ConversationEntry], revision: str | None) -> None:
        conversation_id = record.conversation_id
        stored, number = self._document(CONVERSATION, conversation_id)
        is_missing = (
            record.head_id not in {None, *(e.id for e in entries)} and not self._document(ENTRY, record.head_id)[0]
        )
        if is_missing or (stored.revision if stored else None) != revision:
            raise ConversationConflict(conversation_id)
        for entry in entries:
            self._put(ENTRY, entry.id, entry, record.scope)
        try:
            number = self._put(CONVERSATION, conversation_id, record, record.scope, number)
        except HeadMoved:
            for entry in entries:
                self.documents.delete_document(ENTRY, entry.id)
            raise ConversationConflict(conversation_id) from None
        if stored is None and record.forked_from and record.head_id and not self._touch(record.forked_from):
            self.documents.put_document(CONVERSATION, conversation_id, {}, expected_number=number)
            raise ConversationConflict(conversation_id)

    def _touch(self, conversation_id: str) -> bool:
        """Store a record again, so that a deletion that is under way looks for forks again. Return False if it is gone."""
        while True:
            record, number = self._document(CONVERSATION, conversation_id)
            if record is None:
                return False
            with suppress(HeadMoved):
                self._put(CONVERSATION, conversation_id, record, record.scope, number)
                return True

    def _delete(self, conversation_id: str, revision: str) -> None:
        while True:
            stored, number = self._document(CONVERSATION, conversation_id)
            if stored is None or stored.revision != revision:
                raise ConversationConflict(conversation_id)
            used = self._entries_of(record for record in self._records() if record.conversation_id != conversation_id)
            unused = self._entries_of([stored]) - used
            with suppress(HeadMoved):
                self.documents.put_document(CONVERSATION, conversation_id, {}, expected_number=number)
                break
        for entry_id in unused:
            self.documents.delete_document(ENTRY, entry_id)

    def _entries_of(self, records: Iterable[ConversationRecord]) -> set[str]:
        """Return the ids of the entries in the histories and branches of records."""
        ids = set[str]()
        for head_id in (head_id for record in records for head_id in (record.head_id, *record.branches)):
            ids.update(entry.id for entry in takewhile(lambda entry: entry.id not in ids, self._path(head_id)))
        return ids

    def _path(self, head_id: str | None) -> Iterator[ConversationEntry]:
        while head_id is not None:
            entry = self._entry(head_id)
            yield entry
            head_id = entry.parent_id

    def _entry(self, entry_id: str) -> ConversationEntry:
        entry = self._document(ENTRY, entry_id)[0]
        if entry is None:
            raise KeyError(entry_id)
        return entry

    def _records(self) -> list[ConversationRecord]:
        return [
            TYPES[CONVERSATION].validate_json(d.body["json"]) for d in self.documents.documents(CONVERSATION) if d.body
        ]

    def _document(self, kind: str, name: str | None) -> tuple[Any, int]:
        """Return what a document has, None for an empty one or none, and its number."""
        document = self.documents.document(kind, name or "")
        if document is None or not document.body:
            return None, document.number if document else 0
        return TYPES[kind].validate_json(document.body["json"]), document.number

    def _put(self, kind: str, name: str, value: Any, scope: str | None, number: int | None = None) -> int:
        body = {"principal": scope or "", "json": TYPES[kind].dump_json(value).decode()}
        return self.documents.put_document(kind, name, body, expected_number=number).number
