"""Write the admin client's types and methods from the OpenAPI document of a server.

    python tools/generate_admin.py openapi.json > package/nearflash/admin.py

A test compares the file with the document of the server that was built.
"""

from __future__ import annotations

import json
import keyword
import sys
import textwrap
from pathlib import Path
from typing import Any

HEAD = '''"""The admin API of a server: made from its OpenAPI document by ``tools/generate_admin.py``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from ._http import Http

'''

PRIMITIVES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}

Schema = dict[str, Any]


def name_of(schema: Schema) -> str:
    """Return the name of the type that a reference leads to."""
    return str(schema["$ref"]).rsplit("/", 1)[1]


def type_of(schema: Schema) -> str:
    """Return the type of a schema."""
    if "$ref" in schema:
        return name_of(schema)
    if "const" in schema:
        return f"Literal[{json.dumps(schema['const'])}]"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(dict.fromkeys(type_of(part) for part in schema[word]))
    kinds = schema["type"]
    if isinstance(kinds, list):
        return " | ".join(type_of({**schema, "type": kind}) for kind in kinds)
    if kinds == "array":
        return f"list[{type_of(schema['items'])}]"
    return PRIMITIVES[kinds]


def comment(text: str, indent: str, mark: str = "#: ") -> list[str]:
    """Return a description as lines of comments."""
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(line, 99 - len(indent) - len(mark)) or [""]
    return [f"{indent}{mark}{line}".rstrip() for line in lines]


def docstring(text: str, indent: str) -> list[str]:
    """Return a description as a docstring."""
    words = " ".join(text.split())
    if len(words) + len(indent) + 6 <= 99:
        return [f'{indent}"""{words}"""']
    lines = textwrap.wrap(f'"""{words}', 99 - len(indent))
    return [*(indent + line for line in lines), f'{indent}"""']


def declaration(name: str, schema: Schema) -> list[str]:
    """Return the declaration of a schema's type."""
    if "properties" not in schema:
        if "oneOf" in schema and all("const" in part for part in schema["oneOf"]):
            values = ", ".join(json.dumps(part["const"]) for part in schema["oneOf"])
            alias = textwrap.wrap(values, 90, break_on_hyphens=False)
            lines = [f"{name} = Literal[", *(f"    {line}" for line in alias), "]"]
        else:
            return alternatives(name, schema)
        return [*comment(schema.get("description", ""), ""), *lines]
    required = set(schema.get("required", []))
    if any(keyword.iskeyword(key) for key in schema["properties"]):
        return by_call(name, schema, required)
    lines = [f"class {name}(TypedDict):"]
    lines += docstring(schema.get("description", name), "    ")
    for key, part in schema["properties"].items():
        kind = type_of(part)
        lines.append("")
        lines += comment(part.get("description", ""), "    ")
        lines.append(f"    {key}: {kind if key in required else f'NotRequired[{kind}]'}")
    return lines


def by_call(name: str, schema: Schema, required: set[str]) -> list[str]:
    """Return the declaration of a type with members that are words of Python."""
    lines = comment(schema.get("description", ""), "")
    lines += [f"{name} = TypedDict(", f'    "{name}",', "    {"]
    for key, part in schema["properties"].items():
        kind = type_of(part)
        lines += comment(part.get("description", ""), "        ")
        text = kind if key in required else f"NotRequired[{kind}]"
        lines.append(f'        "{key}": {json.dumps(text)},')
    return [*lines, "    },", ")"]


def alternatives(name: str, schema: Schema) -> list[str]:
    """Return the declarations of a type that is one of several objects."""
    lines, names = [], []
    for part in schema["oneOf"]:
        names.append(name + "".join(word.title() for word in part["properties"]))
        lines += [*declaration(names[-1], part), "", ""]
    lines += comment(schema.get("description", ""), "")
    return [*lines, f"{name} = {' | '.join(names)}"]


def method(path: str, verb: str, operation: Schema) -> list[str]:
    """Return the method of an operation."""
    places, queries = [], []
    for parameter in operation.get("parameters", []):
        kind = type_of(parameter["schema"])
        if parameter["in"] == "path":
            places.append(f"{parameter['name']}: {kind}")
        else:
            queries.append((parameter["name"], kind))
    words = ["self", *places]
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        words.append(f"body: {type_of(content['application/json']['schema'])}")
    if queries:
        words += ["*", *(f"{name}: {kind} | None = None" for name, kind in queries)]
    answers = [told for status, told in operation["responses"].items() if status[0] == "2"]
    result, call = "None", "nothing"
    for answer in answers:
        for media, told in answer.get("content", {}).items():
            result = type_of(told["schema"]) if "schema" in told else "bytes"
            call = "json" if media == "application/json" else "text"
        if not answer.get("content") and verb == "get":
            result, call = "bytes", "bytes"
    literal = [f'"{part}"' for part in path.strip("/").split("/")]
    literal = [part.strip('"{}') if "{" in part else part for part in literal]
    extra = ", body" if content else ", None"
    extra += ", {" + ", ".join(f'"{name}": {name}' for name, _ in queries) + "}"
    lines = [f"    def {operation['operationId']}("]
    lines += [f"        {word}," for word in words]
    lines.append(f"    ) -> {result}:")
    lines += docstring(str(operation.get("summary", operation["operationId"])), "        ")
    place = ", ".join(literal) + ("," if len(literal) == 1 else "")
    if call == "json":
        lines.append(f"        answer: {result} = self._json(")
        lines.append(f'            "{verb.upper()}", ({place}){extra}')
        lines += ["        )", "        return answer"]
    else:
        keyword = "" if call == "nothing" else "return "
        lines.append(f"        {keyword}self._{call}(")
        lines += [f'            "{verb.upper()}", ({place}){extra}', "        )"]
    return lines


def generate(document: Schema) -> str:
    """Return the text of the module."""
    parts = []
    for name, schema in document["components"]["schemas"].items():
        parts.append("\n".join(declaration(name, schema)))
    lines = ["class Admin(Http):"]
    lines += docstring("The admin API: a method for each operation.", "    ")
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            lines += ["", *method(path, verb, operation)]
    parts.append("\n".join(lines))
    return HEAD + "\n" + "\n\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(generate(json.loads(Path(sys.argv[1]).read_text())))
