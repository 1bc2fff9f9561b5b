"""Turn logs of document 001: one entry for each message or tool call, as JSON and for the console.

`entries` and `write` make them, `message_format` shows them to a model, `reader`, `check` and `live` are for files.
`registration` adds the format, its profile, source and reader to the core's tables.
"""
