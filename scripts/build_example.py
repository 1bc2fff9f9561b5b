# Longer than 400 lines because it is data: the whole dialogue of the example session stands here, turn by turn.
"""Builds the example session and its picture: `examples/session.json` and `examples/latency.png`.

The dialogue is a table of `Said` (a person of the team) and `Aya` (the agent, with her tool calls and what they gave).
`messages` folds that table into Anthropic messages. Prose stands here with soft line breaks, which `unwrap` undoes.
Logs and tables of figures come from small functions without chance, clock or compression library, so that every run on
every machine writes the same bytes.

    python scripts/build_example.py [FOLDER]        (FOLDER is `examples` beside this script's folder, if left out)
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple, TypeAlias

Json: TypeAlias = dict[str, object]


class Use(NamedTuple):
    """One tool call and what it returned; `result` None means that no result ever came."""

    name: str
    args: Json
    result: str | None = ""
    error: bool = False


class Said(NamedTuple):
    """What a person of the team wrote. `joined` puts it into the message that carries the last tool results."""

    who: str
    text: str
    picture: bool = False
    joined: bool = False


class Aya(NamedTuple):
    """What the agent answered: text, tool calls made at once, and the thinking before both."""

    text: str
    uses: tuple[Use, ...] = ()
    thinking: str = ""


def read(path: str, text: str | None, **lines: int) -> Use:
    """A file that was read, or a part of it (`from_line`, `to_line`)."""
    return Use("read_file", {"path": path, **lines}, text)


def write(path: str, content: str) -> Use:
    """A file that was written."""
    body = dedent(content).strip() + "\n"
    return Use("write_file", {"path": path, "content": body}, f"wrote {path} ({len(body.splitlines())} lines)\n")


def sql(database: str, query: str, result: str, *, failed: bool = False) -> Use:
    """A query and its table, or its error."""
    return Use("run_sql", {"database": database, "query": unwrap(query)}, result, failed)


def run(command: str, result: str, *, failed: bool = False) -> Use:
    """A command and what it printed."""
    return Use("run_command", {"command": unwrap(command)}, result, failed)


def listing(path: str, *names: str) -> Use:
    """What is in a folder."""
    return Use("list_files", {"path": path}, "".join(f"{path}/{name}\n" for name in names))


def logs(service: str, since: str, query: str, result: str) -> Use:
    """A search in the logs."""
    return Use("search_logs", {"service": service, "since": since, "query": query}, result)


def metrics(name: str, span: str, result: str) -> Use:
    """A metric over a span of time (start and length)."""
    return Use("fetch_metrics", {"name": name, "range": span}, result)


# ------------------------------------------------------------------------------------------------ text and figures


def unwrap(text: str) -> str:
    """`text` without its soft line breaks: lines of a paragraph joined, lists, tables and fenced code left alone."""
    lines: list[str] = []
    fenced = False
    for raw in dedent(text).strip().split("\n"):
        line = raw.rstrip()
        starts = bool(re.match(r"\s*([-*|#>]|\d+[.)] |```)", line)) or fenced or not line
        fenced ^= line.startswith("```")
        if starts or not lines or not lines[-1] or lines[-1].startswith(("```", "|", "#")):
            lines.append(line)
        else:
            wide = ord(lines[-1][-1]) >= 0x2E80 or ord(line.lstrip()[0]) >= 0x2E80
            lines[-1] += ("" if wide else " ") + line.lstrip()
    return "\n".join(lines)


def draw(seed: str, index: int, low: int, high: int) -> int:
    """An integer from `low` to `high` (both included) that depends on `seed` and `index` alone."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return low + int.from_bytes(digest[:6], "big") % (high - low + 1)


def stamp(start_s: int, day: str = "2026-09-15") -> str:
    """A log's time of day: `start_s` seconds after midnight UTC of `day`."""
    return f"{day}T{start_s // 3600:02d}:{start_s // 60 % 60:02d}:{start_s % 60:02d}Z"


def bench_csv() -> str:
    """The benchmark's table: four kinds of index against seven sets of queries, milliseconds."""
    p95 = {
        "word_en": (1184, 31, 164, 19),
        "phrase_en": (1217, 58, 201, 24),
        "substring": (1190, 1205, 143, 1178),
        "zh_2char": (1243, 27, 1262, 22),
        "zh_4char": (1239, 44, 188, 30),
        "ja_mixed": (1251, 49, 246, 41),
        "title_typo": (1196, 1190, 38, 61),
    }
    rows = ["index,query_set,runs,p50_ms,p95_ms,p99_ms,rows_median"]
    for column, index in enumerate(("btree_title", "gin_tsv", "gin_trgm", "bm25_side")):
        for number, (name, values) in enumerate(p95.items()):
            value = values[column]
            found = draw("rows", number, 40, 900)
            rows.append(f"{index},{name},500,{value / 2.3:.1f},{value},{value * 1.6:.1f},{found}")
    return "\n".join(rows) + "\n"


def ingest_log() -> str:
    """About 8,000 characters of the ingest service's log around the failing batch 8841."""
    lines: list[str] = []
    second = 6_900
    for index in range(36):
        second += draw("gap", index, 21, 39)
        docs, took = draw("docs", index, 38, 51), draw("took", index, 210, 980)
        words = docs * draw("words", index, 780, 1_040)
        tail = f"batch={8805 + index} docs={docs} words={words} took_ms={took} ok"
        lines.append(f"{stamp(second)} INFO  worker-{index % 4} {tail}")
    lines += FAILURE_TRACE.strip().split("\n")
    for index in range(44):
        second += draw("late", index, 20, 61)
        depth = 4_270 + index * 14
        kind, tail = (
            ("WARN ", f"batch=8841 retry in 64 s, queue_depth={depth}"),
            ("INFO ", f"heartbeat rss_mb={draw('rss', index, 611, 702)} open_tx=0 lag_s={index * 41}"),
            ("WARN ", f"batch={8842 + index // 4} held back: tenant order requires 8841 first, queue_depth={depth}"),
            ("ERROR", f"batch=8841 attempt={7 + index // 2} {FAILURE}"),
        )[index % 4]
        lines.append(f"{stamp(second)} {kind} worker-{index % 4} {tail}")
    return "\n".join(lines) + "\n"


def backfill_log() -> str:
    """The backfill's progress lines on migration day, one in 345 seconds."""
    lines: list[str] = []
    done = 0
    for index in range(27):
        rate = draw("rate", index, 318, 371)
        done = min(done + rate * 345, 3_120_404)
        lag = draw("lag", index, 40, 260)
        at = stamp(75_945 + index * 345, "2026-09-17")
        lines.append(f"{at} backfill docs={done}/3120404 passages={done * 147 // 100} rate={rate}/s lag_ms={lag}")
    return "\n".join(lines) + "\n"


def slow_queries() -> str:
    """A sample of the slow query log as JSON lines."""
    terms = ("annual report 2019", "会议 纪要", "発注書", "water permit", "ﾃﾞｰﾀ 移行", "school minutes", "采购 合同")
    lines: list[str] = []
    for index in range(14):
        row = {
            "at": stamp(28_800 + index * 173, "2026-09-16"),
            "tenant": draw("tenant", index, 101, 240),
            "q": terms[index % len(terms)],
            "ms": draw("slow", index, 260, 1_420),
            "rows": 0 if index % len(terms) == 4 else draw("hits", index, 1, 4_000),
            "plan": "bitmap" if index % 3 else "bitmap+recheck",
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------ files of the team

NOTES = """
# Search: where we are (September)

- 3.12 M documents, 41 GB of plain text after extraction. By documents: 71 % Latin script, 18 % Chinese, 11 % Japanese.
- Peak 22 searches a second (in each tenant's morning). Ingest 40,000 documents a day, bursts of 900 a minute.
- Today: `ILIKE '%word%'` on `documents.body` and a B-tree on `(tenant_id, updated_at)`. p95 2.9 s, p99 4.7 s.
- Wanted: p95 under 250 ms for body search at peak, ingest not slower than 300 documents a second in a backfill.

## What people search for (sample of 20,000 queries, August)

| kind | share |
|---|---|
| one or two whole words | 61 % |
| a phrase in quotes | 12 % |
| Chinese, 2 characters | 9 % |
| Chinese or Japanese, longer | 11 % |
| part of a word or a number in the middle of a code | 4 % |
| a title with a typing error | 3 % |

## Open
1. Which index for the body? Candidates: B-tree, GIN on tsvector, trigram, BM25.
2. Who tokenises Chinese and Japanese: the database or ingest?
3. Do we keep substring search at all? Support says that two tenants look up file numbers that way.
"""

SCHEMA = """
CREATE TABLE tenants (
    id          integer PRIMARY KEY,
    slug        text NOT NULL UNIQUE,
    languages   text[] NOT NULL DEFAULT '{en}',
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE documents (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    integer NOT NULL REFERENCES tenants (id),
    title        text NOT NULL,
    body         text NOT NULL,
    language     text NOT NULL DEFAULT 'und',
    sha256       bytea NOT NULL,
    source_path  text NOT NULL,
    updated_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    UNIQUE (tenant_id, sha256)
);

CREATE INDEX documents_tenant_updated ON documents (tenant_id, updated_at DESC) WHERE deleted_at IS NULL;

-- Row level security: every connection of the API sets app.tenant and sees its own tenant only.
ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_tenant ON documents USING (tenant_id = current_setting('app.tenant')::integer);

CREATE TABLE ingest_batches (
    id          bigint PRIMARY KEY,
    tenant_id   integer NOT NULL REFERENCES tenants (id),
    state       text NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed')),
    documents   integer NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    error       text
);
"""

EXPLAIN_GIN = """
Limit  (actual time=14.882..15.310 rows=20 loops=1)
  Buffers: shared hit=1841 read=212
  ->  Bitmap Heap Scan on documents  (actual time=14.880..15.301 rows=20 loops=1)
        Recheck Cond: (body_tsv @@ '''report'' & ''2019'''::tsquery)
        Filter: ((deleted_at IS NULL) AND (tenant_id = 117))
        Rows Removed by Filter: 388
        Heap Blocks: exact=402
        ->  Bitmap Index Scan on documents_body_tsv  (actual time=9.044..9.045 rows=611)
              Index Cond: (body_tsv @@ '''report'' & ''2019'''::tsquery)
Planning Time: 0.611 ms
Execution Time: 15.702 ms
"""

EXPLAIN_TRGM = """
Limit  (actual time=96.120..131.774 rows=20 loops=1)
  Buffers: shared hit=9120 read=4417
  ->  Bitmap Heap Scan on documents  (actual time=96.117..131.760 rows=20 loops=1)
        Recheck Cond: (body ~~* '%report 2019%'::text)
        Rows Removed by Index Recheck: 2966
        Heap Blocks: exact=2301 lossy=655
        ->  Bitmap Index Scan on documents_body_trgm  (actual time=88.410..88.411 rows=5267)
              Index Cond: (body ~~* '%report 2019%'::text)
Planning Time: 1.204 ms
Execution Time: 132.550 ms
"""

BTREE_ERROR = """
ERROR:  index row size 2912 exceeds btree version 4 maximum 2704 for index "documents_body_prefix"
DETAIL:  Index row references tuple (1180,4) in relation "documents".
HINT:  Values larger than 1/3 of a buffer page cannot be indexed.
Consider a function index of an MD5 hash of the value, or use full text indexing.
"""

SIZES = """
 index                      | built_in_s | size    | scaled to 3.12 M docs
----------------------------+------------+---------+-----------------------
 documents_title_prefix     |         11 | 22 MB   | 0.2 GB
 documents_body_tsv (gin)   |        184 | 610 MB  | 6.3 GB
 documents_body_trgm (gin)  |        941 | 2900 MB | 30.2 GB
 bm25 side engine (on disk) |        233 | 840 MB  | 8.7 GB
(4 rows)
"""

EXTENSIONS = """
     name      | default_version | installed_version
---------------+-----------------+-------------------
 btree_gin     | 1.3             |
 pg_stat_statements | 1.10       | 1.10
 pg_trgm       | 1.6             |
 pgcrypto      | 1.3             | 1.3
 unaccent      | 1.1             |
(5 rows)
"""

WRITE_RATES = """
 setup                        | docs_per_s | wal_mb_per_1000 | note
------------------------------+------------+-----------------+--------------------------------
 no body index                |        410 |              31 |
 btree on title               |        398 |              32 |
 gin on body_tsv, fastupdate  |        352 |              54 | pending list flushed at 4 MB
 gin on body_tsv, no fastupd. |        301 |              61 |
 gin trgm on body             |        100 |             212 |
 bm25 side engine             |        371 |              31 | plus 1 to 4 s until visible
(6 rows)
"""

DECISION = """
# 0007: Index for body search

Date: 2026-09-14. Status: accepted. Decided by: lin, with petra and tomo.

## Decision
1. Body search uses a **GIN index on a stored `body_tsv` tsvector**, text search configuration `simple`.
2. Ingest, not the database, cuts Chinese and Japanese text into **overlapping bigrams** before it builds the tsvector.
3. A **trigram GIN index on `title` only**, for typing errors and file numbers.
4. The B-tree on `(tenant_id, updated_at)` stays for filters and newest-first lists.
5. **BM25 is not an index here**: the API re-ranks the best 200 rows with a BM25 score.

## Why
- Meets the target: p95 31 ms for words, 27 ms for two-character Chinese on the bench copy.
- B-tree: answers prefixes only, and a body does not fit into an index row.
- Trigram on body: 30 GB of 42 GB free, ingest 4.1 times slower, no help for two-character queries.
- BM25 engine: fastest reads, but a second store to back up, secure by tenant and keep in step; no extension allowed.

## Price
- Substring search inside bodies goes away (4 % of queries); file numbers are found by title.

## Look again when
More than 10 M documents, or p95 over 300 ms for a week.
"""

WORKER = '''
"""Takes batches from the queue and writes their documents."""

from __future__ import annotations

import logging
import time

from docsearch.db import connect
from docsearch.ingest.bigrams import lexemes
from docsearch.queue import Batch, Queue

log = logging.getLogger("worker")

INSERT = """
    INSERT INTO documents (tenant_id, title, body, body_tsv, language, sha256, source_path)
    VALUES (%(tenant)s, %(title)s, %(body)s, %(tsv)s::tsvector, %(language)s, %(sha256)s, %(path)s)
    ON CONFLICT (tenant_id, sha256) DO NOTHING
"""


def run(queue: Queue, name: str) -> None:
    while batch := queue.take():
        attempt = 0
        while True:
            attempt += 1
            try:
                started = time.monotonic()
                count = write(batch)
            except Exception:
                wait = min(2**attempt, 64)
                log.warning("batch=%s retry in %s s, queue_depth=%s", batch.id, wait, queue.depth(), exc_info=True)
                time.sleep(wait)
                continue
            took = (time.monotonic() - started) * 1000
            log.info("%s batch=%s docs=%s took_ms=%d ok", name, batch.id, count, took)
            queue.done(batch)
            break


def write(batch: Batch) -> int:
    """All documents of a batch in one transaction: a batch is whole or absent."""
    with connect(batch.tenant) as connection, connection.transaction():
        rows = [
            {
                "tenant": batch.tenant,
                "title": document.title,
                "body": document.body,
                "tsv": " ".join(f"'{word}':{place}" for place, word in enumerate(lexemes(document.body), 1)),
                "language": document.language,
                "sha256": document.sha256,
                "path": document.path,
            }
            for document in batch.documents
        ]
        with connection.cursor() as cursor:
            cursor.executemany(INSERT, rows)
        return len(rows)
'''

BIGRAMS = '''
"""Words of a text for full text search; Chinese and Japanese runs become overlapping pairs of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator

HAN = r"\\u3400-\\u4dbf\\u4e00-\\u9fff"
KANA = r"\\u3041-\\u309f\\u30a0-\\u30ff"
RUN = re.compile(f"[{HAN}{KANA}]+|[0-9A-Za-z\\u00c0-\\u024f_]+")
WIDE = re.compile(f"[{HAN}{KANA}]")


def lexemes(text: str) -> Iterator[str]:
    """Lower-cased words; a run of n wide characters gives n - 1 pairs (one character alone gives itself)."""
    for match in RUN.finditer(text):
        run = match.group()
        if not WIDE.match(run):
            yield run.lower()
        elif len(run) == 1:
            yield run
        else:
            yield from (run[place : place + 2] for place in range(len(run) - 1))


def query(text: str) -> str:
    """The tsquery of what a person typed: pairs of one run must be neighbours."""
    parts = []
    for match in RUN.finditer(text):
        words = list(lexemes(match.group()))
        parts.append(" <-> ".join(f"'{word}'" for word in words))
    return " & ".join(f"({part})" for part in parts)
'''

FAILURE = "psycopg.errors.ProgramLimitExceeded: string is too long for tsvector"

FAILURE_TRACE = """
Traceback (most recent call last):
  File "/srv/docsearch/ingest/worker.py", line 28, in run
    count = write(batch)
  File "/srv/docsearch/ingest/worker.py", line 56, in write
    cursor.executemany(INSERT, rows)
  File "/srv/docsearch/.venv/lib/python3.12/site-packages/psycopg/cursor.py", line 125, in executemany
    raise ex.with_traceback(None)
psycopg.errors.ProgramLimitExceeded: string is too long for tsvector (1398274 bytes, max 1048575 bytes)
CONTEXT:  unnamed portal parameter $4 = '...'
"""

PASSAGES = '''
"""Cuts a body into passages of bounded length, so that each one's tsvector stays far below the 1 MB limit."""

from __future__ import annotations

from collections.abc import Iterator

LIMIT = 16_000
ENDS = "。！？.!?\\n"


def passages(body: str) -> Iterator[str]:
    """Pieces of at most LIMIT characters that join to `body` again; cut after a sentence, if there is an end."""
    start = 0
    while start < len(body):
        end = min(start + LIMIT, len(body))
        if end < len(body):
            end = 1 + max(body.rfind(mark, start, end) for mark in ENDS)
        yield body[start:end]
        start = end
'''

TEST_FAILED = """
$ pytest -q tests/ingest/test_passages.py --timeout 20
...F                                                                                    [100%]
=========================================== FAILURES ===========================================
_____________________________ test_a_text_without_sentence_ends_is_cut _____________________________

    def test_a_text_without_sentence_ends_is_cut() -> None:
        body = "0123456789abcdef " * 4_000
>       pieces = list(passages(body))

tests/ingest/test_passages.py:41:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
ingest/passages.py:18: in passages
    yield body[start:end]
E   Failed: Timeout (>20.0s) from pytest-timeout.

start = 0, end = 0          <- rfind gave -1 for every mark, so end became 0 and the loop never moved
=================================== short test summary info ====================================
FAILED tests/ingest/test_passages.py::test_a_text_without_sentence_ends_is_cut
1 failed, 3 passed in 20.41s
exit status 1
"""

MIGRATION = """
-- 0031_passages.sql: body search moves to passages. Every step can be run again.
BEGIN;
CREATE TABLE IF NOT EXISTS passages (
    document_id  bigint NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    place        integer NOT NULL,
    tenant_id    integer NOT NULL,
    body_tsv     tsvector NOT NULL,
    length       integer NOT NULL,
    PRIMARY KEY (document_id, place)
);
ALTER TABLE passages ENABLE ROW LEVEL SECURITY;
CREATE POLICY by_tenant ON passages USING (tenant_id = current_setting('app.tenant')::integer);
COMMIT;

-- Outside a transaction, with the session's own timeout:
SET statement_timeout = 0;
SET lock_timeout = '5s';
CREATE INDEX CONCURRENTLY IF NOT EXISTS passages_body_tsv ON passages USING gin (body_tsv);
CREATE INDEX CONCURRENTLY IF NOT EXISTS documents_title_trgm ON documents USING gin (title gin_trgm_ops);
"""

RANKING = """
{
  "rerank": {
    "candidates": 200,
    "k1": 1.2,
    "b": 0.75,
    "average_length": 5210,
    "length_source": "documents.body",
    "boost": {"title": 2.5, "recent_days": 90, "recent_factor": 1.15}
  },
  "search": {
    "configuration": "simple",
    "min_query_chars": 2,
    "timeout_ms": 1500,
    "snippet": {"words": 28, "open": "<mark>", "close": "</mark>"}
  },
  "flags": {"passages": true, "ilike_fallback": false, "nfkc_queries": true}
}
"""

RANK_PY = """
def score(rows: Sequence[Candidate], query: str, settings: Rerank) -> list[Scored]:
    \"\"\"BM25 of each candidate; how rare a word is comes from the statistics table, refreshed every night.\"\"\"
    words = sorted(set(WORD.findall(query)))
    rarity = {word: log(1 + (TOTAL - count + 0.5) / (count + 0.5)) for word, count in frequencies(words).items()}
    scored = []
    for row in rows:
        counts = Counter(word for word in row.words if word in rarity)
        length = row.document_length / settings.average_length
        total = 0.0
        for word, count in counts.items():
            damped = count + settings.k1 * (1 - settings.b + settings.b * length)
            total += rarity[word] * count * (settings.k1 + 1) / damped
        scored.append(Scored(row.document_id, row.place, row.title, total))
    return scored
"""

BACKFILL_PY = """
CHUNK = 500


def backfill(source: Connection, target: Connection, start: int = 0) -> None:
    \"\"\"Writes the passages of every document with an id above `start`, in order of id.\"\"\"
    last = start
    while rows := source.execute(NEXT, {"last": last, "chunk": CHUNK}).fetchall():
        with target.transaction():
            for row in rows:
                for place, piece in enumerate(passages(row.body)):
                    target.execute(INSERT, {
                        "document": row.id,
                        "place": place,
                        "tenant": row.tenant_id,
                        "tsv": tsvector(piece),
                        "length": len(piece),
                    })
        last = rows[-1].id
        if last % 50_000 < CHUNK:
            report(last)


NEXT = "SELECT id, tenant_id, body FROM documents WHERE id > %(last)s ORDER BY id LIMIT %(chunk)s"
INSERT = \"\"\"
    INSERT INTO passages (document_id, place, tenant_id, body_tsv, length)
    VALUES (%(document)s, %(place)s, %(tenant)s, %(tsv)s::tsvector, %(length)s)
\"\"\"
"""

INCIDENT = """
# 2026-09-17: a forgotten replication slot ate 21 GB of disk

**What users saw:** nothing.
**What happened:** the slot `bench_copy`, made on Monday for the bench copy, had no reader any more. Postgres kept all
WAL for it. Free disk on production fell from 41.2 GB (Monday) to 20.3 GB (Thursday, 20:15 UTC).
**How it was found:** go/no-go check, which lists the slots. The backfill would have filled the disk in 18 minutes.
**What was done:** petra dropped the slot at 20:36 UTC from the console, then a checkpoint. 41.3 GB free at 20:40 UTC.

## Why it could happen
- Dropping the bench copy does not drop its slot, and nobody owned that step.
- The alert on free disk fires at 10 GB. At 7 GB a day that is Saturday; in a backfill it is minutes before the end.

## What changes
1. Alert when a slot is inactive and holds more than 5 GB (petra, 22 September).
2. `bench/load.py --build` makes a temporary slot, which goes with its connection (tomo).
3. Slots are listed in the release checklist under point 3.
"""

JUDGED = """
query,doc_expected,rank_before,rank_after_b075,rank_b040
annual report 2019,118204,1,9,2
water permit renewal,77120,2,14,3
school board minutes march,201877,1,3,1
会议纪要 预算,3009121,3,4,3
采购合同 模板,2871992,2,6,2
発注書 テンプレート,1450087,1,1,1
データ移行 手順,1450933,4,2,2
fire safety audit,50418,1,21,4
lease agreement annex b,90077,2,11,2
invoice 20-4471,66103,1,1,1
"""


BENCH_README = """
# Bench

One machine like production's (4 cores, 16 GB), Postgres 16, 300,000 documents drawn by tenant so that the shares of
tenants and languages stay as they are. Bodies are shuffled between tenants of the same language and their numbers
replaced.

- `load.py` replays `queries/*.txt`, 8 connections, each run as a tenant drawn by its share of searches.
- 200 runs to warm up, then `--runs` counted ones. `--cold` restarts Postgres first, with an empty page cache.
- A run counts as failed when it takes more than 5 s. Failed runs stay in the percentiles.
- `bench_index_sizes` and `bench_write_rates` are filled by `load.py --build`.

What it does not show: other load on the machine, a cache that has to hold ten times as much, a replica's lag.
"""

LOAD_PY = """
def replay(connection: Connection, queries: Sequence[str], runs: int, index: Index) -> list[float]:
    \"\"\"Milliseconds of `runs` searches, in the order they were made; the tenant changes from run to run.\"\"\"
    times: list[float] = []
    chance = Random(20260914)
    for run in range(runs + WARM_UP):
        tenant = chance.choices(TENANTS, weights=SHARES)[0]
        text = chance.choice(queries)
        with connection.transaction():
            connection.execute("SELECT set_config('app.tenant', %s, true)", (str(tenant),))
            started = perf_counter()
            try:
                connection.execute(index.statement, {"text": index.query(text), "limit": 20}).fetchall()
            except QueryCanceled:
                pass  # The timeout is the measurement.
            took = (perf_counter() - started) * 1000
        if run >= WARM_UP:
            times.append(took)
    return times


def percentile(times: Sequence[float], share: float) -> float:
    \"\"\"The smallest time that at least `share` of all runs stay within (nearest rank).\"\"\"
    ordered = sorted(times)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
"""

COLD = """
index,query_set,runs,p50_ms,p95_ms,p99_ms
gin_tsv,word_en,100,61.2,212,388
gin_tsv,phrase_en,100,88.0,271,460
gin_tsv,zh_2char,100,49.5,190,341
gin_tsv,ja_mixed,100,73.9,236,402
gin_trgm,word_en,100,402.7,1630,2911
gin_trgm,zh_4char,100,466.1,1702,3050
bm25_side,word_en,100,38.8,144,260
bm25_side,zh_2char,100,41.0,151,255
"""

TEST_FILE = """
from hypothesis import given
from hypothesis import strategies as st

from docsearch.ingest.passages import LIMIT, passages


def test_a_short_text_is_one_passage() -> None:
    assert list(passages("one sentence. another one.")) == ["one sentence. another one."]


def test_a_long_text_is_cut_after_a_sentence() -> None:
    body = "A sentence of some length, not too short. " * 800
    assert all(piece.rstrip().endswith(".") for piece in passages(body))


def test_chinese_text_is_cut_after_its_own_full_stop() -> None:
    body = "这份报告说明了去年的工作。" * 3_000
    assert all(piece.endswith("。") for piece in passages(body))


def test_a_text_without_sentence_ends_is_cut() -> None:
    body = "0123456789abcdef " * 4_000
    pieces = list(passages(body))
    assert max(map(len, pieces)) <= LIMIT


@given(st.text(alphabet=st.sampled_from("ab 。.漢\\n"), max_size=200))
def test_pieces_join_to_the_body(body: str) -> None:
    assert "".join(passages(body)) == body
"""

RUNBOOK = """
# Runbook: a batch has failed

**Alert:** `ingest.batch_failed > 0` for 5 minutes. Team room by day, petra at night.

1. Look: `SELECT id, tenant_id, documents, error FROM ingest_batches WHERE state = 'failed' ORDER BY id`.
2. Read the first line of `error`.
   - `string is too long for tsvector`: a passage was not cut. Note the document's place and length, never its text.
   - `null value in column`: extraction gave no title. The extractor's log has the file's hash.
   - `deadlock`, `connection`: should have been retried. Look why six attempts were not enough.
3. The other batches of the tenant go on; only documents of the failed batch are held back. There is no hurry at night
   unless more than 3 batches failed within an hour.
4. Fix, deploy, then `ingest requeue BATCH`. It can be repeated: documents are unique by tenant and hash.
5. Write down in the incident notes: batch, first line of the error, number of documents, from when to when.

**Never** open the documents of a tenant to find out which one it is. `batch_document_sizes` has place, length and hash.
"""

SEARCH_PY = """
@dataclass(frozen=True)
class Hit:
    document_id: int
    title: str
    snippet: str
    score: float


CANDIDATES = \"\"\"
    SELECT p.document_id, p.place, p.length, d.title, d.updated_at, p.body_tsv
    FROM passages p JOIN documents d ON d.id = p.document_id
    WHERE p.body_tsv @@ %(query)s::tsquery AND d.deleted_at IS NULL
    LIMIT %(candidates)s
\"\"\"

TITLES = \"\"\"
    SELECT id, title, similarity(title, %(text)s) AS near
    FROM documents
    WHERE title %% %(text)s AND deleted_at IS NULL
    ORDER BY near DESC LIMIT 20
\"\"\"


async def search(pool: Pool, tenant: int, text: str, settings: Settings) -> list[Hit]:
    \"\"\"The best hits for what a person typed: titles and passages, best passage of a document only.\"\"\"
    query = bigrams.query(text)
    if not query:
        return []
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('app.tenant', %s, true)", (str(tenant),))
        await connection.execute(f"SET LOCAL statement_timeout = {settings.timeout_ms}")
        rows = await fetch(connection, CANDIDATES, query=query, candidates=settings.candidates)
        titles = await fetch(connection, TITLES, text=text)
    scored = rank.score(rows, query, settings.rerank)
    best = keep_best_passage(scored)
    boosted = merge_titles(best, titles, settings.rerank.boost)
    return [with_snippet(hit, text, settings.snippet) for hit in boosted[:20]]


def keep_best_passage(rows: Iterable[Scored]) -> list[Scored]:
    \"\"\"One row a document: the passage with the highest score; ties go to the earlier passage.\"\"\"
    best: dict[int, Scored] = {}
    for row in rows:
        known = best.get(row.document_id)
        if known is None or (row.score, -row.place) > (known.score, -known.place):
            best[row.document_id] = row
    return sorted(best.values(), key=lambda row: -row.score)
"""

EXPLAIN_LOSSY = """
Bitmap Heap Scan on passages p  (actual time=41.118..377.902 rows=11871 loops=1)
  Recheck Cond: (body_tsv @@ '''school'' & ''minutes'''::tsquery)
  Rows Removed by Index Recheck: 38410
  Heap Blocks: exact=6021 lossy=9377
  Buffers: shared hit=11204 read=4611
  ->  Bitmap Index Scan on passages_body_tsv  (actual time=39.604..39.605 rows=11903)
        Index Cond: (body_tsv @@ '''school'' & ''minutes'''::tsquery)
Planning Time: 0.702 ms
Execution Time: 381.240 ms
"""

CHECKLIST = """
# Release checklist

1. Migration read by two people; every step can be run again.
2. Restore of last night's backup tried on a spare instance within the last 7 days.
3. Free disk at least twice what the change needs.
4. Old path still works with the new tables present (flag off).
5. Flag per tenant; who may switch it is written down.
6. Stop marks as numbers, agreed before the window.
7. Dashboards open: p95, error rate, disk, replica lag, batch states.
8. Release notes in English, Chinese and Japanese.
9. Support knows what changes for users and what to answer.
10. Somebody is awake who may decide.
"""

RESPONSE = """
{
  "query": "school board minutes",
  "took_ms": 41,
  "candidates": 200,
  "hits": [
    {"document_id": 201877, "title": "Board minutes, March", "score": 14.82, "place": 0,
     "snippet": "The <mark>school</mark> <mark>board</mark> read the <mark>minutes</mark> of February."},
    {"document_id": 201902, "title": "Board minutes, April", "score": 13.07, "place": 0,
     "snippet": "<mark>Minutes</mark> of the <mark>school</mark> <mark>board</mark>, April. Present: nine members."},
    {"document_id": 188410, "title": "Budget appendix C", "score": 9.44, "place": 3,
     "snippet": "as the <mark>minutes</mark> of March say, the <mark>school</mark> may order books before June"},
    {"document_id": 140023, "title": "Handbook for members of the board", "score": 7.90, "place": 11,
     "snippet": "who writes the <mark>minutes</mark>, and where the <mark>school</mark> keeps them"},
    {"document_id": 201640, "title": "会议纪要 三月", "score": 4.11, "place": 0,
     "snippet": "<mark>school</mark> <mark>board</mark> <mark>minutes</mark> 摘要：讨论了图书采购与操场维修。"}
  ],
  "titles": [
    {"document_id": 201877, "near": 0.71},
    {"document_id": 201902, "near": 0.68}
  ],
  "warnings": []
}
"""


def hourly_csv() -> str:
    """Searches and latency by hour for a day on staging, with the share of lossy bitmap scans."""
    rows = ["hour_utc,searches,p50_ms,p95_ms,p99_ms,lossy_share"]
    for hour in range(24):
        busy = 1 if 6 <= hour <= 15 else 0
        p95 = draw("hour95", hour, 118 + busy * 30, 141 + busy * 40)
        lossy = draw("lossy", hour, 9, 14) if busy or hour in (3, 20) else draw("lossy", hour, 2, 5)
        searches = draw("searches", hour, 400 + busy * 9_000, 1_900 + busy * 14_000)
        rows.append(f"{hour:02d},{searches},{p95 / 4.5:.0f},{p95},{p95 * 2 + lossy * 5},0.{lossy:02d}")
    return "\n".join(rows) + "\n"


def growth_csv() -> str:
    """Documents at the end of each month, with the yearly rise in autumn when schools begin."""
    rows = ["month,documents,added,deleted,share_zh,share_ja"]
    total = 1_404_112
    for index in range(20):
        year, month = 2025 + index // 12, index % 12 + 1
        added = draw("added", index, 52_000, 66_000) + index * 2_400 + (38_000 if month in (8, 9) else 0)
        deleted = draw("gone", index, 1_900, 5_200)
        total += added - deleted
        rows.append(f"{year}-{month:02d},{total},{added},{deleted},0.{160 + index},0.{96 + index * 7 // 10:03d}")
    return "\n".join(rows) + "\n"


def tenants_csv() -> str:
    """The first twenty tenants on the new path: searches, latency and searches without a hit."""
    rows = ["tenant,searches,p50_ms,p95_ms,zero_hits_before,zero_hits_after"]
    for index in range(20):
        tenant = 131 if index == 0 else 104 + index * 6
        p95 = {7: 318, 13: 284}.get(index, draw("t95", index, 96, 188))
        before = draw("zero", index, 61, 130)
        now = 97 if index == 4 else before - draw("gain", index, 9, 40)
        before = 52 if index == 4 else before
        rows.append(f"{tenant},{draw('n', index, 210, 3_900)},{p95 / 4:.0f},{p95},0.{before:03d},0.{now:03d}")
    return "\n".join(rows) + "\n"


def deploy_log() -> str:
    """The log of the API's deployment on Thursday, with the warning that petra asks about."""
    names = ("api-1", "api-2", "api-3", "api-4")
    day = "2026-09-17"
    lines = [f"{stamp(72_000, day)} deploy  release=2026.09.17-2 image=sha256:8c1f{draw('image', 0, 10**7, 10**8)}"]
    second = 72_004
    for number, name in enumerate(names):
        for step in ("drain", "stop", "start", "wait for /ready", "ready", "back in rotation"):
            second += draw(step, number, 1, 14)
            lines.append(f"{stamp(second, day)} deploy  {name} {step}")
            if step == "start":
                size = draw("pool", number, 9, 11)
                lines.append(f"{stamp(second + 1, day)} {name}   INFO  pool opened, {size} connections, role=api")
                lines.append(f"{stamp(second + 1, day)} {name}   INFO  settings ranking.json rev=41 flags rev=187")
                warning = "table passages not found, search uses documents.body"
                lines.append(f"{stamp(second + 2, day)} {name}   WARN  {warning}")
    lines.append(f"{stamp(second + 2, day)} deploy  done, 4 of 4, errors=0, requests_failed=0")
    return "\n".join(sorted(lines, key=lambda line: line[:20])) + "\n"


def metric(name: str, unit: str, points: list[tuple[str, float]], **more: object) -> str:
    """A metrics answer as the team's tool prints it: JSON with one point a line."""
    body = ",\n".join(f'  ["{at}", {value}]' for at, value in points)
    extra = "".join(f' "{key}": {json.dumps(value)},\n' for key, value in more.items())
    return f'{{\n "metric": "{name}",\n "unit": "{unit}",\n{extra} "points": [\n{body}\n ]\n}}\n'


def free_disk(points: str) -> str:
    """Free disk on production, from points written as `HH:MM=GB`."""
    pairs = [point.split("=") for point in points.split()]
    return metric("disk.free_gb", "GB", [(at, float(value)) for at, value in pairs], environment="production")


def queue_depth() -> str:
    """Documents that wait on staging in the night of the failure: 310 more every quarter of an hour."""
    points = [(at, 4_000.0 + 310 * index) for index, (at, _) in enumerate(series("queue", 0, 1, 22, 2))]
    return metric("ingest.queue_depth", "documents", points, alert=6000)


def series(seed: str, low: int, high: int, count: int, hour: int = 0) -> list[tuple[str, float]]:
    """`count` quarter-hourly points from `hour` on, between `low` and `high`."""
    clock = [(hour * 60 + index * 15) % 1440 for index in range(count)]
    return [(f"{at // 60:02d}:{at % 60:02d}", draw(seed, index, low, high)) for index, at in enumerate(clock)]


# ------------------------------------------------------------------------------------------------ the dialogue
# The formatter stays off: it would spread each short turn over many lines.
# fmt: off


SYSTEM = """
You are Aya, who works with the docsearch team: lin, tomo and petra. docsearch lets small libraries, schools and offices
search their own documents.

Every message from the team room opens with the writer's handle. Answer in the language of the last message. Read before
you judge, say where a figure comes from, and keep answers short enough to read on a phone.

You may read the repository, the logs, the metrics and the bench and staging databases. Production is read only for you.
Ask before anything that deletes, locks or restarts. Never open a tenant's documents: sizes, counts and hashes are
enough.
"""

MONDAY: tuple[Said | Aya, ...] = (
    Said("lin", """
        Morning Aya ☕ This week's goal: choose the index for body search, so that we can migrate on Thursday
        evening. Have a look at our notes and the schema first, then tell me what you think the hard part is.
    """),
    Aya("I'll read the notes, the schema and what is in the bench folder.", (
        read("docs/search/notes.md", NOTES),
        read("db/schema.sql", SCHEMA),
        listing("bench", "README.md", "load.py", "queries/", "queries/en.txt", "queries/ja.txt", "queries/zh.txt",
            "results.csv"),
    )),
    Aya("""
        Three things stand out.

        - **The queries are mostly whole words** (61 %) and phrases (12 %): a word index fits, a substring index is
          for only 4 %.
        - **Short Chinese queries are 9 %.** Two characters are fewer than a trigram has, so a trigram index can't
          help there. That is the hard part, not English.
        - **Row level security filters by tenant after the index.** With 140 tenants, an index scan that finds 5,000
          rows may keep 40. Any choice must be measured with `app.tenant` set.

        One question before I measure: is substring search inside bodies a promise to anybody, or just what `ILIKE`
        happens to do?
    """),
    Said("lin", """
        Just what ILIKE happens to do. Two tenants paste file numbers like 20-4471 into the box, but those are in
        the titles. We can drop substring in bodies if we say so in the release notes.
    """),
    Aya("""
        Good, that frees us. Then the constraints that I work with are:

        1. p95 under 250 ms at 22 searches a second, tenant filter on.
        2. Two-character Chinese must use the index.
        3. Backfill at 300 documents a second or more, otherwise 3.12 M documents don't fit into one night (300/s is
           2.9 hours).
        4. Disk: I still need the free space on the production volume.
        5. File numbers in titles and typing errors in titles must still be found.
    """),
    Said("petra", """
        Free on the volume: 42 GB of 160. I would like to keep 10 GB as reserve, WAL spikes at night. And we are on
        a managed Postgres 16, so no compiling our own extensions.
    """),
    Aya("Let me see what the managed instance offers.", (
        sql("staging", """
            SELECT name, default_version, installed_version FROM pg_available_extensions WHERE name IN
            ('pg_trgm','btree_gin','unaccent','pg_stat_statements','pgcrypto') OR name ILIKE '%bm25%' OR name ILIKE
            '%search%' ORDER BY 1
        """, EXTENSIONS),
    )),
    Aya("""
        `pg_trgm` and `btree_gin` are there; nothing with BM25 or a CJK parser is (staging,
        `pg_available_extensions`, today). So BM25 would mean a second engine beside Postgres, and Chinese and
        Japanese must be cut into words before the text gets to the database.
    """),
    Said("lin", """
        OK. Compare four: btree, GIN on tsvector, trigram, BM25 in a side engine. On the bench copy, 300k docs. Same
        queries, tenant filter on.
    """),
    Aya("Building each one on the bench copy; I start with the three that live in Postgres.", (
        sql("bench", """
            CREATE INDEX documents_body_prefix ON documents (body text_pattern_ops)
        """, BTREE_ERROR, failed=True),
        sql("bench", """
            EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) SELECT id, title FROM documents WHERE body_tsv @@ to_tsquery('simple',
            'report & 2019') AND tenant_id = 117 AND deleted_at IS NULL LIMIT 20
        """, EXPLAIN_GIN),
        sql("bench", """
            EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) SELECT id, title FROM documents WHERE body ILIKE '%report 2019%' AND
            tenant_id = 117 AND deleted_at IS NULL LIMIT 20
        """, EXPLAIN_TRGM),
    ), thinking="""
        A B-tree on the body will most likely fail on row size, but a failing attempt is better evidence than my
        memory. Its fair use is a prefix index on title. For GIN I want to see the rows removed by the tenant
        filter; for trigram the recheck rows, because lossy blocks are where the time goes.
    """),
    Aya("""
        First look, one query each (bench copy, tenant 117):

        - **B-tree** on the body can't even be built: a row of 2,912 bytes exceeds the limit of 2,704. It remains
          for titles.
        - **GIN on tsvector**: 15.7 ms, 388 of 611 rows removed by the tenant filter. No recheck.
        - **Trigram**: 132.6 ms, 2,966 rows thrown away by the recheck, 655 lossy blocks.

        One query proves little. I run the whole set, 500 runs each, and the side engine for BM25.
    """),
    Said("lin", "go 🚀"),
    Aya("", (
        run("""
            python bench/load.py --all --runs 500 --tenant-filter > bench/results.csv
        """, "28 combinations, 14000 queries, 0 errors, 611 s\n"),
        read("bench/results.csv", bench_csv()),
        sql("bench", "SELECT * FROM bench_index_sizes", SIZES),
    )),
    Aya("""
        p95 in ms, 300,000 documents, 500 runs, tenant filter on (`bench/results.csv`):

        | queries | B-tree (title) | GIN tsvector | trigram | BM25 side engine |
        |---|---|---|---|---|
        | words | 1184 | **31** | 164 | 19 |
        | phrase | 1217 | 58 | 201 | 24 |
        | substring | 1190 | 1205 | **143** | 1178 |
        | Chinese, 2 chars | 1243 | **27** | 1262 | 22 |
        | Chinese, 4 chars | 1239 | 44 | 188 | 30 |
        | Japanese mixed | 1251 | 49 | 246 | 41 |
        | title with error | 1196 | 1190 | **38** | 61 |

        Everything around 1,200 ms is a full scan. Sizes scaled to production: GIN 6.3 GB, trigram on body 30.2 GB,
        BM25 8.7 GB. With 42 GB free and 10 GB reserve, trigram on the body would just fit and leave nothing.
    """),
    Said("petra", "Is that bench fair? A warm cache makes everything look nice. How is it loaded?"),
    Aya("I read how it works before I defend it.", (
        read("bench/README.md", BENCH_README),
        read("bench/load.py", LOAD_PY, from_line=40, to_line=70),
    )),
    Aya("""
        Fair in three ways: tenants by their share of searches, `app.tenant` set in each run, failed runs stay in
        the percentiles. Unfair in one, and you named it: 200 warm-up runs, and 300,000 documents fit into the cache
        while 3.12 M will not. I run the cold variant for the candidates that are left.
    """, (
        run("""
            python bench/load.py --cold --runs 100 --only gin_tsv,gin_trgm,bm25_side
        """, COLD),
    )),
    Aya("""
        Cold, p95 in ms: GIN 212 for words and 190 for two-character Chinese, trigram 1,630, BM25 144. The order
        stays the same and the gap to trigram grows, because its posting lists are five times as large. GIN phrases
        miss the target when cold (271), so I'd keep an eye on phrases after restarts.
    """),
    Said("lin", "中文两个字的查询，trigram 真的完全用不上索引吗？能不能给我解释一下原因，顺便说说 bigram 的代价。"),
    Aya("""
        是的，用不上。trigram 索引存的是连续三个字符，而「合同」只有两个字符，没有任何一个完整的三元组可以拿去查，所
        以规划器只能全表扫描——基准测试里 p95 是 1262 ms，和没有索引一样。

        bigram 的代价有三点：

        1. **词条变多**：n 个汉字产生 n−1 个词条，中文文档的 tsvector 大约是原文的 1.9 倍（英文约 0.6 倍）。
        2. **误匹配**：搜「国人」会命中「中国人」。查询时要求相邻（`<->`），短语就准确了，但单个双字词的误匹配无法避
           免。
        3. **分词在入库时做**：改规则就要重建整列，所以规则要先定好，并写上版本号。

        好处是两个字的查询 p95 只有 27 ms，而且不需要词典，新词、人名、地名都能搜到。
    """),
    Said("tomo", """
        日本語側から質問です。bigram は ingest で作るという理解で合っていますか？カタカナの長音「ー」や半角カナはど
        う扱う予定でしょうか。
    """),
    Aya("""
        はい、ingest 側で作ります。データベースには分割済みの tsvector を渡すだけです。

        - 長音「ー」は U+30FC で、カタカナの範囲（U+30A0〜U+30FF）に入るので、そのまま文字として扱います。「サー
          バー」は「サー・ーバ・バー」になります。
        - 半角カナ（ﾃﾞｰﾀ など）は範囲外です。NFKC 正規化を先にかけないと検索できません。今の `bigrams.py` に正規化が
          入っているかは、まだ確認していません。

        確認が必要なので、実装に入る前に一度コードを読みます。
    """),
    Said("petra", "What does each of them do to writes? The nightly burst is my worry, not the reads."),
    Aya("", (
        sql("bench", "SELECT * FROM bench_write_rates ORDER BY docs_per_s DESC", WRITE_RATES),
        metrics("ingest.docs_per_minute", "2026-09-13T22:00Z/2h",
            metric("ingest.docs_per_minute", "documents", series("burst", 610, 902, 9, 22), peak=902)),
    )),
    Aya("""
        Writes on the bench copy (`bench_write_rates`), documents a second:

        - no body index 410, B-tree on title 398
        - GIN with the pending list 352, without it 301
        - trigram on body **100**, and 212 MB of WAL per 1,000 documents, seven times as much
        - BM25 side engine 371, but a document becomes visible only after 1 to 4 s

        Last night's burst peaked at 902 a minute, which is 15 a second: all four survive that. The difference
        matters for the backfill: at 100 a second it takes 8.7 hours, at 352 it takes 2.5.
    """),
    Said("petra", "And autovacuum with the pending list? I remember searches getting slow until the flush."),
    Aya("""
        You remember right: entries in the pending list are searched one by one until they are merged. At 4 MB
        (`gin_pending_list_limit`) that costs about 6 ms per search on the bench copy; at the 64 MB that some guides
        advise it was 90 ms. So I would keep the 4 MB and let ingest call `gin_clean_pending_list` at the end of a
        batch.
    """),
    Said("lin", "BM25 wins most reads. Why not simply take it? Argue both sides please."),
    Aya("""
        **For:** best p95 on words, phrases and two-character Chinese, and a relevance score that people expect. The
        score is the real gain: `ts_rank` does not know how rare a word is.

        **Against:**
        - a second store: backups, restores and upgrades twice, and a restore must bring both to the same moment;
        - row level security ends at Postgres. The side engine must filter by tenant itself; a mistake there shows
          one tenant's documents to another, the worst failure we have;
        - deletes must arrive in both. A school that deletes a file and still finds it has a privacy case;
        - 12 ms faster on words, while the target is 250 ms. We'd pay for speed that nobody can feel.

        The score can be had without the engine: fetch the best 200 rows by GIN and score them with BM25 in the API.
        On the bench that takes 4 ms for 200 rows.
    """),
    Said("lin", "Then give me your recommendation in one paragraph I can paste into the decision record."),
    Aya("""
        Use a GIN index on a stored tsvector column `body_tsv` (configuration `simple`), with Chinese and Japanese
        cut into overlapping bigrams by ingest; add a trigram GIN index on `title` only, for typing errors and file
        numbers; keep the B-tree on `(tenant_id, updated_at)` for filters; and use BM25 only to re-rank the best 200
        rows in the API. This meets the target with a wide margin (p95 31 ms for words, 27 ms for two-character
        Chinese), costs 6.3 GB of 42 GB free, keeps ingest at 352 documents a second, and leaves one store to secure
        and back up. We give up substring search inside bodies, 4 % of queries.
    """, thinking="""
        Weigh by what hurts most. Tenant isolation and one store to restore weigh more than 12 ms. Trigram on the
        body dies on disk and write rate. GIN alone lacks typo tolerance, but only titles need that: 3 % of queries.
        Ranking by BM25 over 200 candidates gives most of the relevance. What could break this: long CJK documents,
        since bigrams almost double the text. I have not measured the largest documents yet and should say so when
        we build.
    """),
    Said("lin", """
        Agreed, and petra nodded too. Decision about the index: exactly that. Please write it down as 0007 with the
        rejected ones and when we look at it again: 10 million documents, or p95 over 300 ms for a week.
    """),
    Aya("", (
        write("docs/decisions/0007-body-index.md", DECISION),
    )),
    Aya("""
        Written: `docs/decisions/0007-body-index.md` ✅ One risk that I'd like to have on record: I haven't measured
        the very longest documents. Bigrams nearly double Chinese text, so they deserve a test before Thursday.
    """),
    Said("tomo", """
        👍 I'll put the tsvector code behind a flag on ingest tonight, staging only. Real tenants stay on ILIKE.
    """),
    Aya("Good. I'll watch the first staging batches tomorrow morning."),
)

TUESDAY: tuple[Said | Aya, ...] = (
    Said("petra", """
        Tuesday, 08:30. How long will CREATE INDEX CONCURRENTLY take on staging? Try it please, 1.1 M docs there.
    """),
    Aya("", (
        sql("staging", """
            CREATE INDEX CONCURRENTLY documents_body_tsv ON documents USING gin (body_tsv)
        """, """
            ERROR:  canceling statement due to statement timeout
            CONTEXT:  while building index "documents_body_tsv"
            Time: 600004.118 ms (10:00.004)
        """, failed=True),
    )),
    Aya("""
        It ran into the role's statement timeout of 10 minutes. Careful: a cancelled concurrent build leaves
        an **invalid** index behind that still costs writes. Let me check before I try again.
    """, (
        sql("staging", """
            SELECT c.relname, i.indisvalid, pg_size_pretty(pg_relation_size(c.oid)) FROM pg_index i JOIN pg_class c
            ON c.oid = i.indexrelid WHERE NOT i.indisvalid
        """, """
                   relname       | indisvalid | pg_size_pretty
            ---------------------+------------+----------------
             documents_body_tsv  | f          | 1290 MB
            (1 row)
        """),
        sql("staging", "SHOW maintenance_work_mem", """
             maintenance_work_mem
            ----------------------
             64MB
            (1 row)
        """),
    )),
    Aya("""
        As feared: `documents_body_tsv` is there, invalid, 1,290 MB. And `maintenance_work_mem` is 64 MB, which
        makes GIN builds slow because the build flushes all the time. I would drop the invalid index, set 1 GB and
        no statement timeout for this session only, and build again. Dropping is a change, so: may I, on staging?
    """),
    Said("petra", "Yes, staging is yours. 2 GB is fine there too."),
    Aya("", (
        sql("staging", """
            DROP INDEX CONCURRENTLY documents_body_tsv; SET statement_timeout = 0; SET maintenance_work_mem = '2GB';
            CREATE INDEX CONCURRENTLY documents_body_tsv ON documents USING gin (body_tsv)
        """, """
            DROP INDEX
            SET
            SET
            CREATE INDEX
            Time: 401882.730 ms (06:41.883)
        """),
    )),
    Aya("""
        Built and valid: 6 min 42 s for 1.1 M documents with 2 GB. Scaled to 3.12 M that is about 19 minutes in
        production. Two lines for the runbook: own `statement_timeout`, and look for invalid indexes after any
        failed build.
    """),
    Said("tomo", """
        Something is wrong with ingest on staging. It has been stuck since about 02:10 UTC, queue grows. Can you
        look? I am on the train for an hour.
    """),
    Aya("Looking at the log, the worker's code, the queue and the batch at the same time.", (
        logs("ingest", "2026-09-15T02:10Z", "batch OR Traceback", ingest_log()),
        read("ingest/worker.py", WORKER),
        metrics("ingest.queue_depth", "2026-09-15T02:00Z/5h30m", queue_depth()),
        sql("staging", """
            SELECT id, tenant_id, state, documents, error FROM ingest_batches WHERE id = 8841
        """, """
              id  | tenant_id |  state  | documents | error
            ------+-----------+---------+-----------+-------
             8841 |       214 | running |       512 |
            (1 row)
        """),
    ), thinking="""
        Four independent looks, none changes anything. What I expect: one poison document in one batch, because
        everything behind it waits in tenant order. The worker's retry loop decides how bad that gets.
    """),
    Aya("""
        Found the shape of it.

        - **Cause:** in batch 8841 (tenant 214) one document gives a tsvector of 1,398,274 bytes; Postgres allows
          1,048,575. That is the risk from yesterday: long Chinese text, nearly doubled by bigrams.
        - **Why all stands still:** `run` in `ingest/worker.py` retries for ever on *any* exception, and batches of
          a tenant keep their order. So one bad document blocks everything behind it.
        - **What is safe:** a batch is one transaction; nothing half-written. Staging only.

        Two separate fixes: bounded text per tsvector, and a worker that gives up on errors that can't heal.
    """),
    Said("tomo", "なるほど。どの文書が原因か特定できますか？"),
    Aya("一番大きい文書を確認します。", (
        read("staging-data/tenant-214/batch-8841/00317.txt", None),
    )),
    Said("lin", """
        Stop, please. Not that file: tenant 214 copied real customer data to staging, we don't open bodies. Sizes
        only.
    """),
    Aya("""
        You are right, and that is my rule too; I reached for the file because it was the short way. I have not seen
        its content: the call never returned. Lengths and hashes from the table are enough.
    """, (
        sql("staging", """
            SELECT row_number() OVER () AS place, length, bytes, language, left(sha, 12) AS sha FROM
            batch_document_sizes WHERE batch_id = 8841 ORDER BY bytes DESC LIMIT 4
        """, """
             place | length  |  bytes  | language |     sha
            -------+---------+---------+----------+--------------
               317 |  241877 |  724902 | zh       | 9be05d1c77a2
                88 |   71240 |  213655 | zh       | 40cc1ee9b01f
               402 |   66031 |   66120 | en       | f2097a3341d8
                 5 |   31007 |   92880 | ja       | 07b3e6fa2c55
            (4 rows)
        """),
    )),
    Aya("""
        Number 317 of the batch: 241,877 characters, Chinese, 724,902 bytes. Next is number 88 with 71,240, which is
        harmless.
    """),
    Said("tomo", "ありがとう。317 番ですね。24 万文字か…📚 なぜ 88 番は大丈夫なんですか？"),
    Aya("""
        317 番は約 725 KB の中国語です。bigram にすると位置情報を除いても 1.4 MB になり、上限を超えます。88 番
        は 71,240 文字なので、同じ比率でも約 410 KB にしかならず、上限の半分以下です。
    """),
    Said("lin", "How many such documents are there in production? If it is three, we could just skip them."),
    Aya("", (
        sql("production", """
            SELECT language, count(*) FILTER (WHERE length(body) > CASE language WHEN 'en' THEN 1700000 ELSE 170000
            END) AS too_long, max(length(body)) AS longest FROM documents GROUP BY 1 ORDER BY 2 DESC
        """, """
             language | too_long | longest
            ----------+----------+---------
             zh       |      412 |  903220
             ja       |       96 |  511804
             en       |        2 | 2204117
             und      |        0 |   88012
            (4 rows)
        """),
    )),
    Aya("""
        510: 412 Chinese, 96 Japanese, 2 English; the longest has 2.2 M characters (production, lengths only). These
        are annual reports and law collections, exactly what people search. Skipping them would be the wrong kind of
        cheap.

        So: cut a body into **passages of at most 16,000 characters**, one row and one tsvector each. 16,000 Chinese
        characters give about 95 KB, a tenth of the limit. It also stays below 16,383, the highest position that a
        tsvector can hold, so that phrases are found everywhere in a passage. A phrase across a cut is the only
        loss.
    """),
    Said("lin", "Passages it is. Does that change 0007?"),
    Aya("""
        Not the choice, only the place: the same GIN index stands on `passages.body_tsv` instead of
        `documents.body_tsv`. I'll add one line under the record, dated today, so that nobody wonders.
    """, (
        run("""
            printf '\\n2026-09-15: body_tsv lives in passages (16,000 characters), not in documents. The choice is
            unchanged.\\n' >> docs/decisions/0007-body-index.md && git diff --stat -- db
        """, ""),
    )),
    Aya("Added. The diff for `db` is empty, so the schema itself is untouched so far: tomo writes that migration."),
    Said("tomo", """
        Back at my desk. I wrote ingest/passages.py, but one test hangs. Want to look over my shoulder? 👀
    """),
    Aya("", (
        read("ingest/passages.py", PASSAGES),
        run("pytest -q tests/ingest/test_passages.py --timeout 20", TEST_FAILED, failed=True),
    )),
    Aya("""
        It hangs when no sentence end is found: `rfind` gives −1 for every mark, so `end` becomes 0 and `start`
        never moves. Logs and number tables have no sentence ends at all. A fix that always moves:

        ```python
        if end < len(body):
            cut = 1 + max(body.rfind(mark, start, end) for mark in ENDS)
            end = cut if cut > start else end
        ```

        `cut > start` covers the −1 case too, since then `cut` is 0. I would add a law to the tests: every piece is
        at least one character and the pieces join to the body.
    """),
    Said("tomo", "直しました。4 passed です。ついでに property test も入れました ✅"),
    Aya("""
        いいですね。サロゲートペアや結合文字（が＝か＋濁点）の途中で切れても、結合すれば元に戻るので壊れません。ただ
        し検索では、切れ目をまたぐ bigram が一つ失われます。16,000 文字に一つなので、無視できると思います。
    """),
    Said("tomo", "Could you review the test file itself too? I want it merged before I go home."),
    Aya("", (
        read("tests/ingest/test_passages.py", TEST_FILE),
    )),
    Aya("""
        Merge it; two remarks that need no second round.

        - The property test draws at most 200 characters, but `LIMIT` is 16,000: it never sees a cut. Make `LIMIT` a
          parameter (`passages(body, limit=16_000)`) and test with `limit=8`. Otherwise the law is true for the
          wrong reason.
        - Add "no piece is empty". A join hides empty pieces.
    """),
    Said("tomo", "Oh, good catch 😅 limit=8 found nothing new, 6 passed. Merged."),
    Aya("Then staging can take it. I watch batch 8841 when it is queued again."),
    Said("petra", "And the worker that retries forever? That one would have woken me up in production."),
    Aya("""
        Proposal for `run`: retry only what can heal (connection lost, deadlock, serialization failure), six times
        at most. Anything else marks the batch `failed` with the error's first line, and the queue goes on. Order
        within a tenant matters only for updates of the same document, so a failed batch must hold back its own
        documents, not the tenant.
    """),
    Said("petra", "Yes to that. tomo, please 🙂 And an alert when a batch fails, not when the queue is at 6,000."),
    Aya("""
        Noted for the runbook: alert `ingest.batch_failed > 0` for 5 minutes, to the channel by day, to petra at
        night.
    """),
    Said("petra", "Please write that runbook page so that somebody half asleep can follow it."),
    Aya("", (
        write("docs/runbooks/failed-batch.md", RUNBOOK),
    )),
    Aya("""
        Written: `docs/runbooks/failed-batch.md`, five steps, one page on a phone. The last line is today's lesson:
        sizes and hashes, never the documents.
    """),
    Said("tomo", "batch 8841 を再投入しました。10:40 UTC です。"),
    Aya("", (
        sql("staging", """
            SELECT id, state, documents, ended_at - started_at AS took FROM ingest_batches WHERE id BETWEEN 8841 AND
            8844 ORDER BY id
        """, """
              id  | state | documents |   took
            ------+-------+-----------+----------
             8841 | done  |       512 | 00:00:09
             8842 | done  |        44 | 00:00:01
             8843 | done  |        39 | 00:00:01
             8844 | done  |        50 | 00:00:01
            (4 rows)
        """),
        sql("staging", """
            SELECT count(*) AS passages, max(length) AS longest, max(pg_column_size(body_tsv)) AS largest_tsv FROM
            passages WHERE tenant_id = 214
        """, """
             passages | longest | largest_tsv
            ----------+---------+-------------
                 4127 |   16000 |       88214
            (1 row)
        """),
    )),
    Aya("""
        8841 は 9 秒で完了しました。最長の passage は 16,000 文字、最大の tsvector は 88,214 バイトで、上限の 12 分
        の 1 です 🎉
    """),
)

WEDNESDAY: tuple[Said | Aya, ...] = (
    Said("lin", "Wednesday. Staging has run on passages all night. What do the slow queries say?"),
    Aya("", (
        logs("api", "2026-09-16T08:00Z", "slow_query", slow_queries()),
        metrics("search.p95_ms", "2026-09-16T05:00Z/3h",
            metric("search.p95_ms", "ms", series("p95", 148, 193, 12, 5), environment="staging")),
    )),
    Aya("""
        Staging p95 was between 152 and 193 ms over three hours, inside the target. In the slow log one thing is
        odd: the query `ﾃﾞｰﾀ 移行` returns **0 rows** each time, while the full-width form should have hits. That is
        the half-width katakana that tomo asked about on Monday. I read `bigrams.py`.
    """, (
        read("ingest/bigrams.py", BIGRAMS),
        run("grep -rn 'unicodedata' ingest api | head", ""),
    )),
    Aya("""
        Confirmed: no normalisation anywhere (the search for `unicodedata` is empty). `ﾃﾞｰﾀ` has code points from
        U+FF65 on, which are in none of the ranges, so those words vanish from text **and** query. Full-width Latin
        letters `ＡＢＣ` vanish too.
    """),
    Said("tomo", "NFKC を両側にかければ済みますか？副作用が心配です。例えば「①」や「㈱」。"),
    Aya("""
        検索用の語にだけ NFKC をかけ、保存する本文はそのままにするのが安全です。

        - 「①」→「1」、「㈱」→「(株)」になります。検索では両方の書き方で見つかるので、むしろ利点です。
        - 「ﾃﾞｰﾀ」→「データ」、「ＡＢＣ」→「ABC」も同じ語になります。
        - 副作用：文字数が変わるので、ハイライトの位置を NFKC 後の文字列から計算してはいけません。元の本文で探し直し
          てください。

        索引は作り直しになります。木曜の backfill の前に入れれば、余分な手間はありません。
    """),
    Said("tomo", "了解です。今日中に入れます。ハイライトは元の本文で計算します。"),
    Aya("お願いします。テスト用に「ﾃﾞｰﾀ移行」「データ移行」「㈱」「ＡＢＣ」「①」の五つを入れておくと安心です 🙏"),
    Said("petra", """
        Here is the chart from the staging dashboard, before and after, same load script. Can you read the numbers
        off and put them into the release draft?
    """, picture=True),
    Aya("""
        From your chart (staging, same load, milliseconds on a log scale):

        | | before | after |
        |---|---|---|
        | p50 | 640 | 38 |
        | p95 | 2900 | 171 |
        | p99 | 4700 | 402 |

        So p95 is 17 times better and inside the 250 ms. I write "search answers in under a fifth of a second for 95
        of 100 searches" into the draft, no decimals. p99 at 402 ms is worth a look later: those are rows with
        `bitmap+recheck`.
    """, (
        write("docs/releases/draft-2026-09.md", """
            ## Search is faster

            95 of 100 searches now answer in under a fifth of a second.
            Titles are found despite a typing error.
            Text in the middle of a word is no longer found inside documents; file numbers are found by title.
        """),
    )),
    Aya("The draft is in `docs/releases/draft-2026-09.md`, three sentences in English."),
    Said("petra", """
        Now the p99. 402 is not a catastrophe, but I want to know what it is made of before it is made of more.
    """),
    Aya("", (
        sql("staging", """
            EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) SELECT p.document_id FROM passages p
            WHERE p.body_tsv @@ to_tsquery('simple', 'school & minutes')
        """, EXPLAIN_LOSSY),
        read("api/search.py", SEARCH_PY, from_line=12, to_line=62),
        read("reports/last-24-hours.csv", hourly_csv()),
        sql("staging", """
            SELECT name, setting, unit FROM pg_settings WHERE name IN
            ('work_mem','effective_cache_size','random_page_cost','gin_pending_list_limit')
        """, """
                      name          | setting | unit
            ------------------------+---------+------
             effective_cache_size   | 1048576 | 8kB
             gin_pending_list_limit | 4096    | kB
             random_page_cost       | 4       |
             work_mem               | 4096    | kB
            (4 rows)
        """),
    )),
    Aya("""
        It is made of lossy bitmaps. With `work_mem` at 4 MB the bitmap of a frequent pair of words doesn't fit, so
        Postgres remembers whole blocks instead of rows: 9,377 lossy blocks, and 38,410 rows read again only to be
        thrown away. That is 340 of 381 ms.

        The hourly table shows the same: p99 follows `lossy_share`, not the number of searches. At 03 and 20 hours
        there is hardly any traffic, yet p99 stands out from its neighbours, together with `lossy_share`: the
        nightly reports ask for frequent words.

        Cheapest remedy: `ALTER ROLE api SET work_mem = '16MB'`. With 40 connections that is at most 640 MB, and
        only while a scan runs. I tried it in my own session: 0 lossy blocks, 58 ms. One thing in `search.py`
        besides: `LIMIT` without an order means that the 200 candidates are whichever come first, not the best ones.
        For frequent words, good documents never reach the re-ranking.
    """, thinking="""
        Two separate findings. work_mem explains p99. The missing order explains nothing about time but may hurt
        relevance: 200 of 11,871 rows in physical order. An ORDER BY ts_rank over all matches would cost time, maybe
        30 to 60 ms for frequent pairs. Mention it, do not mix it with the p99 fix.
    """),
    Said("petra", "16 MB for the api role: done on staging. The candidate thing is for you, lin."),
    Said("lin", "How bad is it? How many queries have more than 200 matches at all?"),
    Aya("", (
        sql("staging", """
            SELECT width_bucket(matches, ARRAY[0,21,201,1001,5001]) AS bucket, count(*) AS queries, round(100.0 *
            count(*) / sum(count(*)) OVER (), 1) AS share FROM query_sample GROUP BY 1 ORDER BY 1
        """, """
             bucket | queries | share
            --------+---------+-------
                  1 |   12204 |  61.0
                  2 |    5511 |  27.6
                  3 |    1652 |   8.3
                  4 |     489 |   2.4
                  5 |     144 |   0.7
            (5 rows)
        """),
    )),
    Aya("""
        11.4 % of the 20,000 sampled queries have more than 200 matches (buckets 3 to 5), 0.7 % more than 5,000. For
        those I suggest: order by `ts_rank` when there are at most 5,000 matches, and beyond that take the newest
        5,000 first. It is a change in the API only, no new index. Not for Thursday; after the migration.
    """),
    Said("lin", "Agreed, after the migration. Put it on the list."),
    Aya("On the list: candidates by `ts_rank` up to 5,000 matches, newest first beyond. After the migration."),
    Said("lin", "发布说明的中文版也写一下吧，要让学校的老师看得懂，不要技术词。"),
    Aya("""
        草稿如下：

        > **搜索更快了。** 现在一百次搜索里有九十五次不到 0.2 秒就能看到结果。
        >
        > **标题打错字也能找到。** 少一个字母、多一个字都没关系。
        >
        > **有一点变化：** 以前输入一个词的中间几个字母，也能在正文里找到；现在请输入完整的词。文件编号（例如 20-4471）
        > 仍然可以通过标题找到。

        没有用「索引」「分词」这类词。要不要加一句「如果找不到以前能找到的文件，请告诉我们」？
    """),
    Said("lin", "加上，谢谢 🙏 另外同义词的事情先不做，记一下原因。"),
    Aya("""
        已加上。同义词先不做，原因记为：没有评测集就无法判断好坏；「采购/购买」这类词在合同里意思不同，自动扩展会带
        来误命中。等有了一百条人工判断的查询再讨论。
    """),
    Said("petra", "Next: Thursday. Please read the migration and tell me what could lock us out of our own house."),
    Aya("", (
        read("db/migrations/0031_passages.sql", MIGRATION),
    ), thinking="""
        Locks: creating the foreign key takes SHARE ROW EXCLUSIVE on documents for a moment; a long transaction
        there would queue everything behind it. The concurrent builds wait for old transactions too.
    """),
    Aya("""
        Mostly careful: separate transaction, own timeouts, safe to run again. Three remarks.

        1. `REFERENCES documents` takes a short lock on `documents`. Behind a long transaction it waits, **and
           everybody queues behind it**. `lock_timeout` is set only later: move it above `BEGIN`.
        2. `IF NOT EXISTS` on an index hides an invalid one from a failed build. Check `indisvalid` after each build
           and drop by hand, as we learned on Tuesday.
        3. The policy on `passages` has no `FORCE`, same as on `documents`: the table's owner is not held by it. The
           API uses another role, so that is fine, but backfill runs as owner. It must set the tenant itself.
    """),
    Said("petra", """
        All three taken. What would make you stop on Thursday evening? I want numbers before, not feelings then.
    """),
    Aya("""
        My stop marks for the window (Thursday 21:00 to 23:00 UTC):

        - search p95 over 1 s for 5 minutes while the old path still serves
        - free disk under 12 GB
        - replica lag over 30 s for 5 minutes
        - backfill under 200 documents a second for 15 minutes (it would not finish in the night)
        - any batch `failed`

        Stop means: pause the backfill, leave the tables, keep the flag `passages` off. Nothing has to be undone in
        a hurry, since the old path does not touch the new table.
    """),
    Said("tomo", "Can you check my backfill before I run it against 3 million rows? It worked on staging."),
    Aya("", (
        read("ingest/backfill.py", BACKFILL_PY),
        sql("production", "SELECT count(*), min(id), max(id) FROM documents", """
              count  | min |   max
            ---------+-----+---------
             3120404 |   1 | 3288911
            (1 row)
        """),
    )),
    Aya("""
        It does the right thing once. Four points for the second time:

        1. **Running it again fails** on the primary key. `ON CONFLICT (document_id, place) DO NOTHING` makes it
           repeatable.
        2. **It forgets where it was.** `start` is there, but nobody writes `last` down. Let `report` store it in a
           table, in the same transaction as the rows.
        3. **Documents that change meanwhile:** one that ingest updates after the backfill has passed it keeps its
           old passages. Turn on writing passages in ingest *before* the backfill, then each document is right
           whoever comes last.
        4. **Progress:** `last % 50_000 < CHUNK` assumes ids without gaps; 168,507 are missing (3,288,911 highest
           id, 3,120,404 rows). Count rows instead, otherwise reports come at random.

        Speed is fine: one transaction per 500 documents.
    """),
    Said("tomo", "4点とも直しました。3番は見落としていました、助かりました 🙇"),
    Aya("""
        よかったです。では明日の順番は、① 空の表と索引 ② ingest の二重書き込み ③ backfill ④ フラグ、の四段階になりま
        す。
    """),
    Said("lin", "Good. Go or no-go tomorrow at 20:30 UTC, petra decides."),
    Aya("Noted: go or no-go Thursday 20:30 UTC, petra decides, stop marks as above."),
)

THURSDAY: tuple[Said | Aya, ...] = (
    Said("lin", "Thursday noon here. Walk through the release checklist with us and say only what is not yet true."),
    Aya("", (
        read("docs/runbooks/release.md", CHECKLIST),
        listing("ops/restore-tests", "2026-08-08.md", "2026-08-22.md", "2026-09-06.md"),
        run("grep -ril 'substring' docs/support", ""),
    )),
    Aya("""
        Of ten points, seven are true. Not yet:

        - **2. Restore tried within 7 days:** the last one that I can find was 11 days ago (6 September).
        - **8. Release notes in Japanese:** English and Chinese are there.
        - **9. Support:** I find no note to support about substring search going away in bodies.

        The rest has a place to look: migration read by petra and me (Wednesday), flag per tenant, stop marks agreed
        yesterday, petra awake and deciding.
    """),
    Said("tomo", "日本語のリリースノート、下書きをお願いできますか？学校の事務の方が読みます。"),
    Aya("""
        下書きです。

        > **検索が速くなりました。** 100 回の検索のうち 95 回は、0.2 秒以内に結果が表示されます。
        >
        > **題名の打ち間違いに強くなりました。** 一文字違っていても見つかります。半角カナと全角カナも区別しません。
        >
        > **変わること：** 本文の中では、単語の途中の文字だけで探すことはできなくなります。単語全体を入力してください。
        > 文書番号（例：20-4471）は、これまでどおり題名から探せます。
        >
        > 以前は見つかった文書が見つからないときは、お知らせください。
    """),
    Said("petra", """
        Restore of last night's backup just finished on the spare: 52 minutes, row counts equal. Point 2 is true ✔️
    """),
    Aya("""
        Then support is the last open point. lin, two sentences from you to them are enough; the Chinese and English
        notes are linked in the draft.
    """),
    Said("lin", "Sent."),
    Aya("Ten of ten. See you all at 20:30 UTC."),
    Said("petra", """
        API deploy ran at 20:00. There was a WARN on each node, and I don't like WARNs before a migration. What is
        it?
    """),
    Aya("", (
        logs("deploy,api", "2026-09-17T20:00Z", "*", deploy_log()),
    )),
    Aya("""
        Harmless and expected: `table passages not found, search uses documents.body`, once per node at start. The
        new code looks for the table that 0031 will create, finds none and stays on the old path: point 4 of the
        checklist, seen in the wild. It looks again every 60 s, so no restart is needed after the migration. 4 of 4
        nodes, no failed request.
    """),
    Said("petra", "Thursday 20:30 UTC. Please run the checks for go/no-go."),
    Aya("", (
        metrics("search.p95_ms", "2026-09-17T19:30Z/1h",
            metric("search.p95_ms", "ms", series("old", 2610, 2940, 4, 19), environment="production")),
        metrics("disk.free_gb", "2026-09-14T20:00Z/3d",
            free_disk("Mon-20:00=41.2 Tue-08:00=37.9 Tue-20:00=34.3 Wed-08:00=30.9 Wed-20:00=27.2 Thu-20:15=20.3")),
        sql("production", """
            SELECT slot_name, active, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) AS retained
            FROM pg_replication_slots
        """, """
              slot_name  | active | retained
            -------------+--------+----------
             replica_1   | t      | 16 kB
             bench_copy  | f      | 21 GB
            (2 rows)
        """),
        sql("production", """
            SELECT pid, state, now() - xact_start AS age, left(query, 40) FROM pg_stat_activity WHERE xact_start <
            now() - interval '5 minutes'
        """, """
             pid | state | age | left
            -----+-------+-----+------
            (0 rows)
        """),
    )),
    Aya("""
        **No-go at this moment, for one reason: disk.** 🛑

        - Free disk fell from 41.2 GB on Monday evening to 20.3 GB, 7 GB a day. Still above the stop mark of 12.
        - Cause: the replication slot `bench_copy` is inactive and holds back **21 GB of WAL**. It was made for
          Monday's bench copy and nobody reads it any more.
        - Why that stops us: the backfill writes 54 MB of WAL per 1,000 documents, 68 GB an hour at 350 a second, and
          the slot would keep all of it. We'd cross the mark after 7 minutes and be full after 18.
        - All else is fine: no long transactions, replica lag 16 kB, p95 as always on the old path.

        Dropping the slot would free the space within a checkpoint. It is production and a deletion: petra, that is
        yours.
    """, thinking="""
        20.3 GB alone would pass. The trap is the backfill: 350 x 54 MB / 1,000 is 19 MB a second, 68 GB an hour,
        all retained while the slot is there. 8.3 GB above the mark is 7 minutes. The slot is the only unusual
        thing, and I must not drop it myself: production, deletion.
    """),
    Said("petra", "Ouch, mine. I thought it went with the copy. Can you drop it? I'm on my phone."),
    Aya("I try with your word, though I expect my role to refuse.", (
        sql("production", "SELECT pg_drop_replication_slot('bench_copy')", """
            ERROR:  permission denied to use replication slots
            DETAIL:  Only roles with the REPLICATION attribute may use replication slots.
        """, failed=True),
    )),
    Aya("""
        Refused, as it should be: my role has no REPLICATION attribute. From your phone, in the provider's console
        as admin:

        ```sql
        SELECT pg_drop_replication_slot('bench_copy');
        CHECKPOINT;
        ```
    """),
    Said("petra", "Done from the console. Look again?"),
    Aya("", (
        metrics("disk.free_gb", "2026-09-17T20:30Z/15m", free_disk("20:30=20.2 20:35=20.2 20:40=41.3")),
        sql("production", "SELECT slot_name, active FROM pg_replication_slots", """
             slot_name | active
            -----------+--------
             replica_1 | t
            (1 row)
        """),
    )),
    Aya("41.3 GB free, one slot left, and it is active. All stop marks are clear: from my side **go** ✅"),
    Said("petra", "Go. Starting migration 0031 now."),
    Aya("Watching locks and invalid indexes.", (
        run("watch-migration 0031 --until index-valid --timeout 3600",
            "Interrupted by the team before it finished (after 00:04:11).\n", failed=True),
    )),
    Said("lin", """
        wait, don't block on that. tomo needs you: is the backfill allowed to start before the index is valid?
    """, joined=True),
    Aya("""
        Allowed, but please don't: inserting into a table while its GIN index is built concurrently is correct, but
        every row then goes through the pending list and the build waits for more transactions at the end. Index on
        the **empty** table first (seconds), then backfill. tomo: wait for petra's "valid".
    """),
    Said("petra", "valid. both. 40 seconds 😄"),
    Said("tomo", "Backfill started 21:00 UTC."),
    Aya("I look in every half hour and only speak when a stop mark comes near."),
    Said("petra", "23:45. Tell me something nice."),
    Aya("", (
        logs("backfill", "2026-09-17T21:00Z", "backfill docs=", backfill_log()),
        metrics("disk.free_gb", "2026-09-17T21:00Z/150m",
            free_disk("21:00=41.1 21:30=39.9 22:00=38.4 22:30=36.8 23:00=35.3 23:30=34.1")),
        metrics("replica.lag_s", "2026-09-17T21:00Z/150m",
            metric("replica.lag_s", "s", series("replica", 0, 4, 10, 21), environment="production")),
        sql("production", """
            SELECT state, count(*) FROM ingest_batches WHERE started_at > '2026-09-17 21:00Z' GROUP BY 1
        """, """
             state | count
            -------+-------
             done  |    61
            (1 row)
        """),
    )),
    Aya("""
        Done in all but name: the last line says 3,120,404 of 3,120,404 documents, about 1.47 passages each. Rate
        between 321 and 371 a second, disk 34.1 GB free, replica lag at most 4 s, 61 batches done and none failed.
        All marks clear.
    """),
    Said("petra", "😌 And the slot: please write the incident note while we remember. No blame words."),
    Aya("", (
        write("docs/incidents/2026-09-17-replication-slot.md", INCIDENT),
    )),
    Aya("""
        Written: `docs/incidents/2026-09-17-replication-slot.md`. Users saw nothing; three changes with names and
        dates. petra, please check the minute of the drop, I took 20:36 UTC from the disk curve.
    """),
    Said("petra", "Then flag on for one tenant, the friendly school. Number 131."),
    Aya("", (
        run("flags set passages --tenant 131 --on",
            "permission denied: flags in production need a person of the group release\n", failed=True),
    )),
    Aya("""
        My role may not switch production flags, rightly. petra or lin, the line is `flags set passages --tenant
        131 --on`.
    """),
    Said("lin", "on for 131. 这边天亮了，我去睡一会儿，petra 辛苦了 🌅"),
    Aya("好好休息，阿林。有异常我只叫 petra，不吵你。"),
)

FRIDAY: tuple[Said | Aya, ...] = (
    Said("lin", "我起来了。131 从昨晚到现在怎么样？"),
    Aya("", (
        metrics("search.p95_ms", "2026-09-18T00:00Z/3h",
            metric("search.p95_ms", "ms", series("school", 122, 168, 12), environment="production", tenant=131)),
        logs("api", "2026-09-17T23:40Z", "tenant=131 level>=WARN", ""),
    )),
    Aya("""
        阿林好。租户 131 从零点到三点（UTC），p95 一直低于 170 ms，没有任何警告或错误（日志搜索结果为空）。样本不大：
        这段时间只有夜里的少量查询，建议等到他们上午十点的高峰再扩大范围。
    """),
    Said("petra", """
        I switched it on for 20 tenants at 07:00 UTC. One of them writes: 'fire safety audit' used to be first, now
        page two.
    """),
    Aya("""
        That smells like ranking, not like the index. I look at the configuration, the scoring and the judged
        queries.
    """, (
        read("api/config/ranking.json", RANKING),
        read("api/rank.py", RANK_PY),
        read("bench/judged.csv", JUDGED),
    )),
    Aya("""
        It is ranking. `length_source` says `documents.body` with an average of 5,210 characters, but we now score
        passages, and long documents carry the full length penalty (`b` 0.75) although only one passage is scored.
        So long reports fall behind short notes: "fire safety audit" from 1 to 21, "water permit renewal" from 2 to
        14.

        The judged file has a column with `b` 0.40 from tomo's trial: 4 and 3 for these two, and no query loses more
        than 3 places. The clean fix is the passage's own length with `b` 0.75; the quick one for today is `b` 0.40.
        I would do the quick one now and the clean one on Monday.
    """, thinking="""
        Check against judged.csv: ranks with b=0.40: 2,3,1,3,2,1,2,4,2,1, mean 2.1. Before: 1,2,1,3,2,1,4,1,2,1,
        mean 1.8. With 0.75: 9,14,3,4,6,1,2,21,11,1, mean 7.2. Worst change at 0.40 is fire safety audit, from 1 to
        4.
    """),
    Said("lin", "Quick one now. What is the mean rank in the three columns? I want it in the change note."),
    Aya("""
        Mean rank of the ten judged queries: 1.8 before, 7.2 with `b` 0.75, 2.1 with `b` 0.40 (`bench/judged.csv`).
    """),
    Said("lin", "And what does a search look like now from outside? Use the demo tenant, those are our own texts."),
    Aya("", (
        run("""
            curl -s localhost:8080/v1/search?q=school+board+minutes -H 'x-tenant: demo' | jq .
        """, RESPONSE),
    )),
    Aya("""
        41 ms, five hits, sensible order; the two documents with the words in the title are first. One flaw: the
        snippet of hit 4 does not mark "board", though the title has it. That is right by the letter (the snippet
        shows one passage) but looks like a mistake to a reader. Low priority, I'd leave it.
    """),
    Said("tomo", "b=0.40 を staging に入れて、判定クエリを流しました。平均 2.1、同じです 👌"),
    Aya("ありがとうございます。机上の値と一致しましたね。では petra に本番反映をお願いします。"),
    Said("petra", "Live for the 20. The tenant says: 'much better, thank you' 🎉 Rest of the tenants on Monday."),
    Aya("Good news 🎉 I'll note the 20 as the canary group and Monday as the day for the other 120."),
    Said("petra", "Numbers for the 20 tenants until 14:00 UTC, please. Anybody worse off?"),
    Aya("", (
        read("reports/2026-09-18-canary.csv", tenants_csv()),
    )),
    Aya("""
        Two are over the 250 ms, one finds less than before:

        - **146** (p95 318 ms) and **182** (284 ms). Both hold mostly very long documents; I'd look at lossy bitmaps
          first.
        - **128**: searches without a hit went from 5.2 % to 9.7 %. All others went down. This is one of the two
          tenants with file numbers, I suspect numbers that stand in the body only.

        The other 17 are fine: p95 between 96 and 186 ms, fewer empty results.
    """),
    Said("lin", "128 打电话来了：他们的编号有一部分只写在正文里，例如「卷 20-4471-3」。怎么办？"),
    Aya("""
        不需要改正文的索引。「20-4471-3」入库时被切成 20、4471、3 三个词，所以输入「4471」或「20-4471」都能找到；找
        不到的只会是片段，例如「471」。以前的 ILIKE 能找到片段，现在不行，这正是我们在发布说明里写的变化。

        建议两步：

        1. 先看日志里他们到底输入什么，只看查询词，不看文档。
        2. 如果确实是编号片段，就在入库时把编号（数字和连字符组成的串）另外存成一列 `codes`，给这一列建 trigram 索
           引。它很短，全部租户加起来估计不到 200 MB。
    """),
    Said("lin", "好，先做第一步。周一给我结果，别急着建列。"),
    Aya("明白：周一（9 月 21 日）给你 128 的查询词统计，不建列。"),
    Said("lin", "One thing from 0007: we look again at 10 million documents. When is that?"),
    Aya("", (
        read("reports/growth.csv", growth_csv()),
    )),
    Aya("""
        Late: net growth was 92,000 documents a month over the last twelve months (`reports/growth.csv`), and that
        pace rises by about 2,400 a month. From 3.12 M this gives 10 M in spring 2030. It is so slow against 40,000
        a day because most of what ingest takes are new versions of known documents.

        One correction to the record, though: since Tuesday the index holds **passages**, 1.47 for each document.
        What we meant in 0007 was rows in the index. Ten million passages are 6.8 M documents, about the end
        of 2028. Shall I write "rows in the index" there?
    """),
    Said("lin", "Yes please. Rows in the index, and the date as a guess."),
    Aya("", (
        run("""
            sed -i 's/More than 10 M documents/More than 10 M rows in the index (about the end of 2028)/'
            docs/decisions/0007-body-index.md && git diff --stat
        """, """
             docs/decisions/0007-body-index.md | 2 +-
             1 file changed, 1 insertion(+), 1 deletion(-)
        """),
    )),
    Aya("Changed, one line. The other mark, p95 over 300 ms for a week, stays as it is."),
    Said("lin", "Before the weekend: what is open, who does it, by when? Short."),
    Aya("""
        | what | who | when |
        |---|---|---|
        | passage length in the score, `b` back to 0.75 | tomo | Mon 21 Sep |
        | flag on for the other 120 tenants | petra | Mon 21 Sep, 07:00 UTC |
        | alert on replication slots that hold more than 5 GB | petra | Tue 22 Sep |
        | 100 judged queries, half of them Chinese and Japanese | lin | Fri 2 Oct |
        | `work_mem` 16 MB for the api role in production | petra | Mon 21 Sep |
        | what 128 searches for, words only | Aya | Mon 21 Sep |
        | candidates by `ts_rank` | tomo | Wed 30 Sep |
        | staging without real data of tenant 214 | lin | Tue 22 Sep |

        The index decision itself stands as recorded on Monday in 0007, with Tuesday's note.
    """),
    Said("lin", "And put what we learned into your memory please: facts only, with dates."),
    Aya("", (
        write("memory/2026-09-18.md", """
            - 2026-09-15: A tsvector may not exceed 1,048,575 bytes; passages of 16,000 characters keep clear of it.
            - 2026-09-15: A cancelled concurrent build leaves an invalid index. Look at indisvalid, drop, build again.
            - 2026-09-16: Search words are NFKC-normalised, stored bodies are not.
            - 2026-09-17: Inactive replication slots hold back WAL; bench_copy cost 21 GB. petra owns slots.
            - 2026-09-18: Ranking runs with b = 0.40 until the score uses the passage's length.
        """),
    )),
    Aya("Saved as five dated facts in `memory/2026-09-18.md`."),
    Said("tomo", "来週は東京の祝日（月・火・水）なので、passage の長さの件は木曜になりそうです。"),
    Aya("""
        了解しました。期限を 9 月 24 日（木）に変更します。それまで `b` は 0.40 のままで問題ありません。良い連休
        を 🍁
    """),
    Said("petra", "Thanks Aya. Quietest migration in a while, slot aside. 周末愉快 (I learned that from lin)."),
    Aya("""
        周末愉快, petra, and well done 🌿 I'll keep an eye on the 20 tenants and only write if a stop mark is
        crossed.
    """),
)

# fmt: on
DIALOGUE = MONDAY + TUESDAY + WEDNESDAY + THURSDAY + FRIDAY

# ------------------------------------------------------------------------------------------------ the picture

FONT = {  # Three columns by five rows a character; each octal digit is one row.
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757", "7": "71111",
    "8": "75757", "9": "75717", "A": "25755", "B": "65656", "C": "34443", "D": "65556", "E": "74647", "F": "74644",
    "G": "34553", "H": "55755", "I": "72227", "L": "44447", "M": "57755", "N": "65555", "O": "25552", "P": "65644",
    "R": "65655", "S": "34216", "T": "72222", "Y": "55222", " ": "00000", ",": "00022",
}  # fmt: skip
WIDTH, HEIGHT, FLOOR = 360, 240, 215
PALETTE = bytes((255, 255, 255, 51, 51, 51, 214, 112, 92, 66, 133, 164, 222, 222, 222))
WHITE, INK, BEFORE, AFTER, GRID = range(5)
LATENCY_MS = (("P50", 640, 38), ("P95", 2900, 171), ("P99", 4700, 402))
BAR_PX = {38: 33, 171: 76, 402: 101, 640: 115, 2900: 158, 4700: 172}  # 66 pixels a decade from 12 ms on, by hand


def box(rows: list[bytearray], left: int, top: int, right: int, bottom: int, color: int) -> None:
    """Fills a rectangle; right and bottom are not included."""
    for row in rows[top:bottom]:
        row[left:right] = bytes([color]) * (right - left)


def label(rows: list[bytearray], left: int, top: int, text: str, scale: int = 2) -> None:
    """Writes `text` in the small font, `scale` pixels a dot."""
    for place, character in enumerate(text):
        for line, bits in enumerate(FONT[character]):
            for column in range(3):
                if int(bits) >> (2 - column) & 1:
                    x, y = left + (place * 4 + column) * scale, top + line * scale
                    box(rows, x, y, x + scale, y + scale, INK)


def chart() -> list[bytearray]:
    """The bar chart's pixels as palette numbers: search latency before and after, on a logarithmic scale."""
    rows = [bytearray(WIDTH) for _ in range(HEIGHT)]
    label(rows, 12, 8, "SEARCH LATENCY, MS, LOG SCALE")
    for line in range(2):
        box(rows, 12, FLOOR - 61 - line * 66, WIDTH - 90, FLOOR - 60 - line * 66, GRID)
    for group, (name, *values) in enumerate(LATENCY_MS):
        for side, value in enumerate(values):
            left = 24 + group * 82 + side * 34
            box(rows, left, FLOOR - BAR_PX[value], left + 30, FLOOR, (BEFORE, AFTER)[side])
            label(rows, left, FLOOR - 12 - BAR_PX[value], str(value))
        label(rows, 42 + group * 82, FLOOR + 6, name)
    box(rows, 12, FLOOR, WIDTH - 90, FLOOR + 2, INK)
    for line, name in enumerate(("BEFORE", "AFTER")):
        box(rows, 284, 60 + line * 20, 294, 70 + line * 20, (BEFORE, AFTER)[line])
        label(rows, 300, 60 + line * 20, name)
    return rows


def deflate(data: bytes, stride: int) -> bytes:
    """`data` as a zlib stream (RFC 1950, 1951): one block of fixed codes, matches to the byte before and the row above.

    Written out here because zlib's own output differs between its builds, and the file must be the same everywhere.
    `stride` is the length of a row and must lie in 257 to 384, the range of distance code 16.
    """
    bits = ["110"]  # The last block, of kind 1; codes run from their highest bit, numbers from their lowest.
    place = 0
    while place < len(data):
        length, distance = max((_match(data, place, step), step) for step in (1, stride))
        if length >= 3:
            bits.append("11000101" if length == 258 else f"{length - 2:07b}")
            bits.append("00000" if distance == 1 else "10000" + f"{stride - 257:07b}"[::-1])
        else:
            length, byte = 1, data[place]
            bits.append(f"{byte + 0x30:08b}" if byte < 144 else f"{byte + 0x100:09b}")
        place += length
    stream = "".join([*bits, "0000000"])
    packed = bytes(int(stream[start : start + 8][::-1], 2) for start in range(0, len(stream), 8))
    return b"\x78\x01" + packed + struct.pack(">I", zlib.adler32(data))


def _match(data: bytes, place: int, distance: int) -> int:
    """How many bytes at `place` repeat those `distance` before: 258 or at most 10, lengths that need no extra bits."""
    if distance > place:
        return 0
    length = 0
    while length < 258 and place + length < len(data) and data[place + length] == data[place + length - distance]:
        length += 1
    return length if length == 258 else min(length, 10)


def png() -> bytes:
    """The chart as a PNG file with a palette (8 bits a pixel)."""
    rows = chart()

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 3, 0, 0, 0)
    pixels = deflate(b"".join(b"\0" + row for row in rows), WIDTH + 1)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, body) for kind, body in ((b"IHDR", head), (b"PLTE", PALETTE), (b"IDAT", pixels), (b"IEND", b""))
    )


# ------------------------------------------------------------------------------------------------ the messages


def call_id(number: int) -> str:
    """A call's id in the provider's form, the same on every run."""
    letters = base64.b64encode(hashlib.sha256(f"call {number}".encode()).digest()).decode()
    return "toolu_01" + re.sub(r"[^0-9A-Za-z]", "x", letters)[:22]


def signature(text: str) -> str:
    """A stand-in for a provider's signature: base64 that depends on the thinking alone."""
    parts = [hashlib.sha256(f"{index}:{text}".encode()).digest() for index in range(5)]
    return base64.b64encode(b"".join(parts)).decode()


def said(turn: Said) -> list[Json]:
    """The blocks of a person's message: the picture first, if there is one, then the text."""
    text: Json = {"type": "text", "text": f"{turn.who}: {unwrap(turn.text)}"}
    if not turn.picture:
        return [text]
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png()).decode()}
    return [{"type": "image", "source": source}, text]


def answered(turn: Aya, ids: list[str]) -> list[Json]:
    """The blocks of the agent's message: thinking, text, calls."""
    blocks: list[Json] = []
    if turn.thinking:
        thought = unwrap(turn.thinking)
        blocks.append({"type": "thinking", "thinking": thought, "signature": signature(thought)})
    if turn.text:
        blocks.append({"type": "text", "text": unwrap(turn.text)})
    for name, use in zip(ids, turn.uses, strict=True):
        blocks.append({"type": "tool_use", "id": name, "name": use.name, "input": use.args})
    return blocks


def returned(turn: Aya, ids: list[str]) -> list[Json]:
    """The blocks with the results: files come as a list of text blocks, everything else as one string."""
    blocks: list[Json] = []
    for name, use in zip(ids, turn.uses, strict=True):
        if use.result is None:
            continue
        text = dedent(use.result).removeprefix("\n")
        content: object = [{"type": "text", "text": text}] if use.name == "read_file" else text
        block: Json = {"type": "tool_result", "tool_use_id": name, "content": content}
        blocks.append(block | {"is_error": True} if use.error else block)
    return blocks


def messages() -> Iterator[Json]:
    """The dialogue as Anthropic messages, in order."""
    count = 0
    pending: list[Json] = []
    for turn in DIALOGUE:
        if isinstance(turn, Said) and turn.joined:
            yield {"role": "user", "content": [*pending, *said(turn)]}
            pending = []
            continue
        if pending:
            yield {"role": "user", "content": pending}
            pending = []
        if isinstance(turn, Said):
            blocks = said(turn)
            yield {"role": "user", "content": blocks if turn.picture else blocks[0]["text"]}
            continue
        ids = [call_id(count + index) for index in range(len(turn.uses))]
        count += len(ids)
        yield {"role": "assistant", "content": answered(turn, ids)}
        pending = returned(turn, ids)


def main(folder: Path) -> None:
    """Writes `session.json` and `latency.png` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    session = {"system": unwrap(SYSTEM), "messages": list(messages())}
    text = json.dumps(session, indent=1, ensure_ascii=False) + "\n"
    (folder / "session.json").write_bytes(text.encode())
    (folder / "latency.png").write_bytes(png())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "examples")
