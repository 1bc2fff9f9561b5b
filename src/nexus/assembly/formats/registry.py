"""The message formats by name."""

from __future__ import annotations

from nexus.assembly.fit.view import MessageFormat
from nexus.assembly.formats.roles import RolesFormat
from nexus.assembly.formats.tagged import TaggedFormat, TaggedStableFormat
from nexus.assembly.formats.turnlog import TurnLogFormat
from nexus.types.profile import MessageFormatName

FORMATS: dict[MessageFormatName, MessageFormat] = {
    message_format.name: message_format
    for message_format in (RolesFormat(), TaggedFormat(), TaggedStableFormat(), TurnLogFormat())
}
