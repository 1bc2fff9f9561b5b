"""Generate the TypeScript types of the server's methods from their schemas: `python scripts/build_server_types.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nexus.server.methods import METHODS
from nexus.server.openrpc import schemas
from nexus.server.service import DISCOVER

FILE = Path(__file__).parent.parent / "clients" / "typescript" / "src" / "server.d.ts"

HEAD = """/**
 * Types of the methods of `nexus serve`, in snake_case as they are sent and returned by default.
 * Generated from the server's JSON Schemas by scripts/build_server_types.py.
 */
"""
CAMEL = """
type CamelName<S extends string> = S extends `${infer Head}_${infer Rest}` ? `${Head}${Capitalize<CamelName<Rest>>}` : S;

/** A result or event with the header `Nexus-Case: camel`. Keys of your own values, such as request bodies, stay. */
export type Camel<T> = T extends (infer Item)[]
  ? Camel<Item>[]
  : T extends object
    ? { [K in keyof T as K extends string ? (string extends K ? K : CamelName<K>) : K]: Camel<T[K]> }
    : T;
"""
EVENTS = ("StreamStart", "Token", "Reasoning", "Retry", "ToolStatus", "CompactionStart", "CompactionEnd", "StreamEnd",
          "StreamError")  # fmt: skip


def ts_type(schema: dict[str, Any]) -> str:
    """Return the TypeScript type of a JSON Schema."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(ts_type(item) for item in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            item = ts_type(schema["items"]) if schema.get("items") else "unknown"
            return f"({item})[]" if "|" in item else f"{item}[]"
        case "object":
            return "{ [key: string]: unknown }"
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as name:
            return name
        case _:
            return "unknown"


def interface(name: str, schema: dict[str, Any]) -> str:
    """Return the interface of a struct."""
    required = set(schema.get("required", ()))
    lines = [f"/** {schema.get('description', name).splitlines()[0]} */", f"export interface {name} {{"]
    for key, value in schema.get("properties", {}).items():
        lines.append(f"  {key}{'' if key in required else '?'}: {ts_type(value)};")
    return "\n".join([*lines, "}"])


def text() -> str:
    """Return the whole file."""
    parts = [HEAD, *(interface(name, schema) + "\n" for name, schema in schemas().items())]
    events = " | ".join(EVENTS)
    parts.append(
        "/** An event of an agent's turn: the data of a server-sent event. */\n"
        f'export type AgentEvent = ({events} | {{ type: "open" | "gap" }}) & {{\n'
        "  agent_id: string;\n  request_ids?: (string | number)[];\n};\n"
    )
    rows = ["/** Params and result of every method. Those of agents are at `/agent/ID`, or take an `agent_id`. */"]
    rows.append("export interface Methods {")
    for name, method in METHODS.items():
        rows.append(f"  /** {method.summary} */")
        rows.append(f"  {name}: {{ params: {method.params.__name__}; result: {method.result.__name__} }};")
    rows.append(f'  "{DISCOVER}": {{ params: NoParams; result: {{ [key: string]: unknown }} }};')
    return "\n".join([*parts, *rows, "}", CAMEL])


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
    print(f"{FILE.name}: {len(METHODS)} methods")
