"""Writes the tables of the ledger into docs/ledger.md, from the migrations: `python scripts/build_ledger_docs.py`."""

from __future__ import annotations

from pathlib import Path

from nexus.ledger.sqlite import SqliteLedger

PAGE = Path(__file__).parent.parent / "docs" / "ledger.md"
BEGIN, END = "<!-- schema -->", "<!-- end of schema -->"

TABLES = {
    "migration": "A version of the schema that was applied.",
    "thread": "A path of entries. A fork names its parent and the entry up to which it shares the parent's path.",
    "session": "What a name means now: the newest move of a label, or the newest change of an alias (status `alias`).",
    "session_move": "A move of a label's pointer: made, forked, rewound, renamed, archived, facts changed. Never edited.",
    "alias": "A change of an alias. Never edited.",
    "entry": "An append.",
    "message": "A message of an entry.",
    "tool_call": "Where a tool call or its result stands. Arguments and result are in the message alone.",
    "idempotency": "A key that was used, and the hash of what was appended under it.",
    "decision": "A cut of a view.",
    "assembly": "The manifest of a context that was sent.",
    "view_head": "How many decisions and manifests a view has on a thread, and which are the newest.",
    "calibration": "How a provider's counts of a model's prompts relate to ours.",
    "calibration_head": "Which calibration of a model is the newest.",
    "blob": "An image's data, once.",
    "blob_use": "Which entry shows an image.",
    "search": "The index of the full-text search (FTS5, without the texts). `rowid` is `message.id_row`.",
    "turn": "A turn, from its entries. `status` is `open` where nothing closed it.",
    "compaction": "The fields of a compaction, from its entry's body.",
    "pin": "The fields of a pin or unpin, from its entry's body.",
    "undone": "What an undo undoes, from its entry's body.",
}

COLUMNS = {
    "version": "number of the migration",
    "checksum": "SHA-256 of its script",
    "at_ms": "when, Unix time in milliseconds",
    "tenant": "whose row it is; `local` unless another one was given",
    "id": "the thread's number, or the message's own id",
    "parent": "the thread that it continues",
    "fork_seq": "the entry after which it continues its parent; 0 for a root",
    "root_hash": "chain value before its first own entry",
    "head_seq": "its newest entry",
    "head_hash": "chain value there",
    "turn": "number of the exchange",
    "open_turn": "1 while that turn is not closed",
    "marks": "own entries that change how others are shown",
    "messages": "own messages",
    "tokens": "base tokens of own messages, in the largest wire form",
    "first_ms": "time of the first own entry",
    "last_ms": "time of the last own entry",
    "erased": "1 when it was deleted for good",
    "hash": "chain value after this row, or the row's own hash",
    "label": "the session's name",
    "number": "counts from 1",
    "thread": "the thread it belongs or points to",
    "status": "`active`, `archived`, `deleted` or `alias`; of a turn its derived state",
    "facts": "JSON: title, persona, parent session, task, origin, …",
    "reason": "why",
    "name": "the alias, or the tool's name",
    "target": "what it leads to; NULL when it was taken back",
    "seq": "number of the entry on its path",
    "kind": "what sort of entry or decision",
    "body": "JSON",
    "id_row": "the message's number in this file",
    "ord": "order within the entry, from 0",
    "role": "`system`, `user`, `assistant` or `tool`",
    "run_id": "the run it belongs to",
    "source": "`human`, `agent`, `trigger`, `webhook`, `cron`, `event`, …",
    "model": "the model that wrote it",
    "content": "JSON of the message's parts",
    "meta": "JSON of what else is known (`context_json` of document formats among it)",
    "openai": "base tokens in OpenAI's form",
    "anthropic": "base tokens in Anthropic's form",
    "gemini": "base tokens in Gemini's form",
    "aside": "base tokens of thinking and memory in it",
    "call_id": "the call's id",
    "part": "index of the part in the message",
    "is_result": "1 for a result, 0 for a call",
    "is_error": "1 when the tool failed",
    "key": "the idempotency key",
    "payload": "SHA-256 of kind, body and messages",
    "view": "profile, wire form, window size class, counter",
    "at_seq": "the head when it was decided",
    "manifest": "JSON: hashes and positions of all that was sent",
    "decisions": "how many decisions there are",
    "decision_hash": "chain value of the newest",
    "assemblies": "how many manifests there are",
    "assembly_seq": "entry of the newest",
    "assembly_hash": "hash of the newest",
    "provider": "the provider's name",
    "factor_64": "reported tokens to ours, in 64ths",
    "samples": "from how many replies",
    "sha256": "SHA-256 of the data",
    "data": "base64 text as it was received",
    "text": "what is found",
    "first_seq": "its first entry",
    "last_seq": "its last entry",
    "started_ms": "time of the first entry",
    "ended_ms": "time of the closing entry",
    "toolset": "the named toolset",
    "tools_available": "JSON list of the tools' names",
    "permissions_granted": "JSON list",
    "permissions_used": "JSON list",
    "source_event": "id of the event that began it",
    "workspace": "the workspace's path",
    "input_tokens": "reported, cache reads and writes included",
    "output_tokens": "reported",
    "cache_read_tokens": "reported",
    "cache_write_tokens": "reported",
    "reasoning_tokens": "reported",
    "covers_from": "first entry that the summary stands for",
    "covers_to": "last entry that it stands for",
    "first_kept": "entry from which all is shown after it",
    "summary": "the summary",
    "type": "how it was made",
    "trigger": "`context_limit`, `overflow_recovery`, `manual` or `periodic`",
    "tokens_before": "tokens shown before",
    "tokens_after": "tokens shown after",
    "summary_tokens": "tokens of the summary",
    "call_tokens": "tokens that making it took",
    "duration_ms": "how long making it took",
    "message_seq": "entry of the message that is pinned",
    "message_ord": "its order there",
    "undone_seq": "the entry that is undone",
}


def schema() -> str:
    """The section: a table of columns for each table and view, in the order in which they were made."""
    ledger = SqliteLedger()
    lines: list[str] = []
    with ledger._reading() as reader:  # noqa: SLF001 - the connection itself is wanted
        made = reader.db.rows(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'search_%'"
        )
        for name in sorted((str(row[1]) for row in made), key=list(TABLES).index):
            kind = "view" if ("view", name) in made else "table"
            lines += ["", f"### {name}" + (" (view)" if kind == "view" else ""), "", TABLES[name], ""]
            lines += ["| column | type | |", "|---|---|---|"]
            for _, column, form, _, _, place in reader.db.rows(f"PRAGMA table_info({name})"):
                key = " (key)" if place else ""
                lines.append(f"| `{column}` | {(form or 'as in the body').lower()}{key} | {COLUMNS[column]} |")
    ledger.close()
    return "\n".join(lines[1:])


def page(text: str) -> str:
    """The page with the section as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{schema()}\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE.name} has {schema().count('###')} tables and views.")


if __name__ == "__main__":
    main()
