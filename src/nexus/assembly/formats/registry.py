"""The message formats by name."""

from __future__ import annotations

from nexus.assembly.fit.view import MessageFormat
from nexus.assembly.formats.roles import RolesFormat
from nexus.services.message_format import TaggedFormat, TaggedStableFormat
from nexus.turnlog.message_format import TurnLogFormat
from nexus.types.profile import MessageFormatName

FORMATS: dict[MessageFormatName, MessageFormat] = {
    message_format.name: message_format
    for message_format in (RolesFormat(), TaggedFormat(), TaggedStableFormat(), TurnLogFormat())
}
