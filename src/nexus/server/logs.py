"""The server's logs: an access log and an error log, as JSON lines.

Lines have names, numbers and classes of errors. They never have the text of a message, a token, a key, a query or a header. A
line is ASCII and written at once, so several processes may write to one file; a file that was moved is opened again.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Any

from nexus.errors import BadSetting
from nexus.text.redact import redact

ACCESS = logging.getLogger("nexus.server.access_log")
ACCESS.propagate = False
STANDARD_ERROR = "-"
"""Name of standard error in place of a file."""
MAX_FRAMES = 20
MAX_MESSAGE_CHARS = 500


def describe_failure(error: BaseException) -> str:
    """Return the class of an unexpected error and the places in the code, without its text, which may have content."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    places = ", ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)  # noqa: PTH119 - a name
    cause = error.__cause__ or error.__context__
    because = ""
    if cause is not None:
        because = f" after {type(cause).__name__}"
    return f"{type(error).__name__}{because} at {places or 'an unknown place'}"


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, message, and the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {"time": utc_text(record.created), "level": record.levelname.lower()}
        if record.name != ACCESS.name:
            first_line = record.getMessage().partition("\n")[0]  # what follows in other packages' messages has contents
            line |= {"logger": record.name, "message": redact(first_line).text[:MAX_MESSAGE_CHARS]}
        if record.exc_info and record.exc_info[1] is not None:
            line["failure"] = describe_failure(record.exc_info[1])
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        return json.dumps({**line, **fields}, default=str)


def utc_text(seconds: float) -> str:
    """Return a time since 1970 as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _PrivateFile(WatchedFileHandler):
    """A log file that only its owner may read."""

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open(self.baseFilename, "ab", opener=_open_private), encoding="ascii")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def open_logs(access: str, errors: str) -> Generator[None]:
    """Write the logs while the block runs.

    Args:
        access: File of the access log, `-` for standard error, or empty for none.
        errors: File of the error log, `-` for standard error.

    Raises BadSetting for a file that cannot be written.
    """
    with ExitStack() as stack:
        for logger, place, level in ((ACCESS, access, logging.INFO), (logging.getLogger(), errors, logging.WARNING)):
            if not place:
                continue
            handler = _open_handler(place)
            handler.setFormatter(JsonLines())
            handler.setLevel(level)
            logger.addHandler(handler)
            stack.callback(handler.close)
            stack.callback(logger.removeHandler, handler)
        ACCESS.setLevel(logging.INFO if access else logging.CRITICAL)
        yield


def _open_handler(place: str) -> logging.Handler:
    if place == STANDARD_ERROR:
        return logging.StreamHandler(sys.stderr)
    try:
        return _PrivateFile(place, encoding="ascii")
    except OSError as error:
        raise BadSetting(f"log file {place} not writable: {error.strerror or error} (name another file)") from error
