"""Generate the schema section of docs/ledger.md from the migrations: `python scripts/build_ledger_docs.py`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from nexus.ledger.sqlite import SqliteLedger

PAGE = Path(__file__).parent.parent / "docs" / "ledger.md"
BEGIN, END = "<!-- schema -->", "<!-- end of schema -->"
HEAD = ("|column|content|", "|---|---|")

TABLES = {
    "migration": "A schema migration that was applied.",
    "thread": "One line of entries. A fork names its parent thread.",
    "session": "Current meaning of a name.",
    "session_move": "A change of a session: created, forked, rewound, renamed, archived, metadata.",
    "alias": "A change of an alias.",
    "entry": "One append.",
    "message": "A message of an entry.",
    "tool_call": "Position of a tool call or result, which are stored in the message.",
    "idempotency": "An idempotency key that was used.",
    "decision": "A cut in one view of a thread.",
    "assembly": "The manifest of a context that was sent.",
    "view_head": "Number and newest of a view's cuts and manifests.",
    "calibration": "Ratio of a provider's token counts to ours, for one model.",
    "calibration_head": "The newest calibration of a model.",
    "lease": "The newest call of a session that took its lease, and who may write. Not part of the hash chain.",
    "event": "An event that a broker accepted.",
    "document": "A JSON object that a program keeps, such as a user's profile or an agent. Only its newest version.",
    "blob": "Image data, stored once.",
    "blob_use": "An entry that shows an image.",
    "search": "Full-text index (FTS5, contentless). `rowid` is `message.id_row`.",
    "turn": "Turns.",
    "compaction": "Compactions.",
    "pin": "Pins and unpins.",
    "undone": "Undos.",
}

COMMON = {
    "tenant": "owner of the row; `local` unless you name another",
    "thread": "number of the thread",
    "seq": "number of the entry, counted from the root of its thread",
    "ord": "position of the message in its entry, from 0",
    "number": "counts from 1",
    "at_ms": "Unix time in milliseconds",
    "kind": "kind of entry or decision",
    "model": "the model",
    "provider": "the provider",
    "view": "profile, provider format, window size class and counter",
    "reason": "why, as text",
    "sha256": "SHA-256 of the image data",
    "hash": "chain value after this row, or hash of the row",
}
"""Columns with one meaning in several tables: described once, above the tables."""

COLUMNS = {
    "version": "number of the migration",
    "checksum": "SHA-256 of its script",
    "id": "number of the thread",
    "message.id": "ID of the message",
    "event.id": "key of the event: its ID, U+001F, and a digest of session and principal; before version 5 the ID alone",
    "session": "label of its session when it was accepted",
    "state": "`queued`, `running`, `done`, `failed` or `dropped`",
    "document.kind": "kind of document, in the program's words",
    "document.name": "name within the kind",
    "document.body": "JSON object",
    "event.body": "the broker's text of the event and its options",
    "event.turn": "turn that answered it; 0 for none",
    "accepted_ms": "time of acceptance",
    "changed_ms": "time of the newest change of state",
    "parent": "thread that it continues",
    "fork_seq": "last entry shared with the parent; 0 without a parent",
    "root_hash": "chain value before its first own entry",
    "head_seq": "newest entry",
    "head_hash": "chain value of the newest entry",
    "turn": "number of the turn",
    "open_turn": "1 until that turn is closed",
    "marks": "own checkpoints",
    "messages": "own messages",
    "tokens": "base tokens of its own messages, in the largest provider format",
    "first_ms": "time of the first own entry",
    "last_ms": "latest time of own entries; of a fork without any, of the last shared one, or 0 if an earlier version made it",
    "erased": "1 after erasure",
    "label": "name of the session",
    "status": "`active`, `archived`, `deleted` or `alias`",
    "turn.status": "derived; `open` until an entry closes the turn",
    "facts": "JSON: title, persona, parent session, task, source, …",
    "alias.name": "the alias",
    "name": "name of the tool",
    "target": "session it redirects to; NULL after removal",
    "body": "JSON",
    "id_row": "number of the message in this file",
    "role": "`system`, `user`, `assistant` or `tool`",
    "turn.role": "`manager`, `worker` or `unified`",
    "run_id": "run that it belongs to",
    "source": "`human`, `agent`, `trigger`, `webhook`, `cron`, `event`, …",
    "content": "JSON of the message parts",
    "meta": "JSON of other fields, such as `context_json`",
    "openai": "base tokens in OpenAI's format",
    "anthropic": "base tokens in Anthropic's format",
    "gemini": "base tokens in Gemini's format",
    "aside": "base tokens of its thinking and memory notes",
    "call_id": "ID of the call",
    "part": "index of the message part",
    "is_result": "1 for a result, 0 for a call",
    "is_error": "1 when the tool failed",
    "key": "the idempotency key",
    "payload": "SHA-256 of kind, body and messages",
    "at_seq": "newest entry when the cut was made",
    "manifest": "JSON: hashes and positions of everything sent",
    "decisions": "number of cuts",
    "decision_hash": "chain value of the newest cut",
    "assemblies": "number of manifests",
    "assembly_seq": "entry of the newest manifest",
    "assembly_hash": "hash of the newest manifest",
    "factor_64": "reported tokens over our count, in 64ths",
    "samples": "number of replies it is based on",
    "holder": "process number and a random part; empty after a release",
    "expires_ms": "time when it ends unless it is renewed, by the store's own clock",
    "token": "fencing token of the holder: larger than all tokens before",
    "fence": "fencing token of the newest writer: no smaller one may write",
    "data": "base64 text as received",
    "text": "the indexed text",
    "first_seq": "first entry",
    "last_seq": "last entry",
    "started_ms": "time of the first entry",
    "ended_ms": "time of the closing entry",
    "toolset": "name of the toolset",
    "tools_available": "JSON list of tool names",
    "permissions_granted": "JSON lists",
    "permissions_used": "JSON lists",
    "source_event": "ID of the event that started it",
    "workspace": "path of the workspace",
    "input_tokens": "reported, cache reads and writes included",
    "output_tokens": "reported",
    "cache_read_tokens": "reported",
    "cache_write_tokens": "reported",
    "reasoning_tokens": "reported",
    "covers_from": "first entry that the summary replaces",
    "covers_to": "last entry that it replaces",
    "first_kept": "first entry shown in full after it",
    "summary": "the summary",
    "type": "method",
    "trigger": "`context_limit`, `overflow_recovery`, `manual` or `periodic`",
    "tokens_before": "tokens shown before",
    "tokens_after": "tokens shown after",
    "summary_tokens": "tokens of the summary",
    "call_tokens": "tokens used to make it",
    "duration_ms": "time taken to make it",
    "message_seq": "entry of the pinned message",
    "message_ord": "its position there",
    "undone_seq": "entry that is undone; 0 for cuts",
}


def schema() -> str:
    """Return the generated section: columns that tables share, then each table and view with its own columns."""
    ledger = SqliteLedger()
    lines = ["Columns that several tables share:", ""]
    lines += [*HEAD, *(f"|`{column}`|{text}|" for column, text in COMMON.items())]
    with ledger.reading() as reader:
        made = reader.db.rows(
            "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'search_%'"
        )
        for name in sorted((str(row[1]) for row in made), key=list(TABLES).index):
            rows = [(str(row[1]), str(row[2]), bool(row[5])) for row in reader.db.rows(f"PRAGMA table_info({name})")]
            lines += _section(name, rows, is_view=("view", name) in made)
    ledger.close()
    return "\n".join(lines)


def _section(name: str, rows: list[tuple[str, str, bool]], *, is_view: bool) -> list[str]:
    """Return the lines of one table or view; `rows` are name, declared type and whether it is part of the key."""
    lines = ["", f"### {name}" + (" (view)" if is_view else ""), "", TABLES[name]]
    keys = [f"`{column}`" for column, _, is_key in rows if is_key]
    shared = [f"`{column}`" for column, _, is_key in rows if not is_key and column in COMMON]
    if keys or shared:
        parts = [f"Key: {', '.join(keys)}."] if keys else []
        parts += [f"Shared: {', '.join(shared)}."] if shared else []
        lines[-1] += f" {' '.join(parts)}"
    own = [(column, form) for column, form, _ in rows if column not in COMMON or f"{name}.{column}" in COLUMNS]
    lines += ["", *HEAD] if own else []
    for text, columns in groupby(own, lambda item: COLUMNS.get(f"{name}.{item[0]}") or COLUMNS[item[0]]):
        names = ", ".join(f"`{column}`{' (blob)' if form == 'BLOB' else ''}" for column, form in columns)
        lines.append(f"|{names}|{text}|")
    return lines


def page(text: str) -> str:
    """Return the page with a fresh generated section."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{schema()}\n\n{END}{after}"


def main() -> None:
    """Rewrite the section in place."""
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE.name} has {schema().count('###')} tables and views.")


if __name__ == "__main__":
    main()
