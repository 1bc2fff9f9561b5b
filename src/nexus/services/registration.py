"""Registration of the tagged dialogue in the core's tables."""

from __future__ import annotations

from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.builtin import PROFILES
from nexus.interop.readers import READERS
from nexus.services.tagged_blocks import SPECS
from nexus.workspace.sources.registry import SOURCES

FORMATS.add("tagged", "nexus.services.message_format:TAGGED")
FORMATS.add("tagged_stable", "nexus.services.message_format:TAGGED_STABLE")
PROFILES.add("tagged", "nexus.services.profiles:TAGGED")
PROFILES.add("tagged_stable", "nexus.services.profiles:TAGGED_STABLE")
for _name, _spec in SPECS.items():
    SOURCES.add(_name, _spec)
READERS.add("dialogue", "nexus.services.dialogue_rows:READER")
