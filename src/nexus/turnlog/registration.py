"""Registration of the turn log in the core's tables."""

from __future__ import annotations

from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.builtin import PROFILES
from nexus.interop.readers import READERS
from nexus.workspace.sources.registry import SOURCES

FORMATS.add("turnlog", "nexus.turnlog.message_format:TURN_LOG")
PROFILES.add("turnlog", "nexus.turnlog.profile:TURNLOG")
SOURCES.add("turn_log", "nexus.turnlog.profile:TURN_LOG_SOURCE")
READERS.add("turnlog", "nexus.turnlog.reader:READER")
