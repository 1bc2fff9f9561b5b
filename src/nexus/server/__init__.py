"""The server: agents for programs in any language, as JSON-RPC 2.0 over HTTP or standard input and output.

`nexus serve` runs it, `nexus.server.client.Client` calls it. One table, `methods.METHODS`, has every method.
"""
