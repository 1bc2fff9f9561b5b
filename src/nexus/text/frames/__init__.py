"""Frames that text cannot forge: frame tags inside framed text are escaped, and the escape is reversed exactly.

`escape` and `unescape` are for texts, `escape_line_breaks` and `unescape_line_breaks` for values on one line. `scan` finds
possible tags independently of the escape, to check finished contexts. Only text inside Nexus' own frames is escaped:
assistant messages, tool calls and tool results have real roles and are never changed. User messages with notes are in
`text.message_text`. docs/frames.md is written for readers of escaped text.
"""

from nexus.text.frames.escaping import Scope, escape, unescape
from nexus.text.frames.scanner import Sighting, scan
from nexus.text.frames.tags import MARKS_VERSION
from nexus.text.one_line import escape_line_breaks, unescape_line_breaks

__all__ = [
    "MARKS_VERSION",
    "Scope",
    "Sighting",
    "escape",
    "escape_line_breaks",
    "scan",
    "unescape",
    "unescape_line_breaks",
]
