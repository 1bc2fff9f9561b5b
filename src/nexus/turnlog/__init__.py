"""Turn logs of document 001: one entry for each message or tool call, as JSON and for the console."""
