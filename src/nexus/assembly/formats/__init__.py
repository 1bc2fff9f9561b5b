"""Message formats: how a profile shows the conversation.

`roles` shows messages in real roles. Other formats are in the rooms of what they show, and add themselves to the table in
`registry`; plugins may too. `nexus.assembly.formats.protocol.MessageFormat` is the protocol of a format, `path_format` its
state on one path of the ledger.
"""
