"""An OpenAPI document as one HTML page that loads nothing else: no script, font or style sheet."""

from __future__ import annotations

import json
from collections import defaultdict
from html import escape
from typing import Any

__all__ = ["docs_page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
code, pre, .path { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: #8882; padding: .75rem; overflow-x: auto; border-radius: 4px; }
details { border: 1px solid #8886; border-radius: 4px; margin: .5rem 0; padding: 0 .75rem; }
summary { cursor: pointer; padding: .5rem 0; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .5rem; }
tr + tr { border-top: 1px solid #8884; }
"""


def docs_page(document: dict[str, Any]) -> str:
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append((method, path, operation))
    info = document["info"]
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    links = " · ".join(f'<a href="#{_anchor(tag)}">{escape(tag)}</a>' for tag in tags)
    sections = "".join(
        f'<h2 id="{_anchor(tag)}">{escape(tag.capitalize())}</h2>{_text(about)}'
        + "".join(_call(*call) for call in by_tag[tag])
        for tag, about in tags.items()
    )
    schemas = "".join(
        _schema(name, schema) for name, schema in document["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>{_text(info['description'])}"
        f'<p>{links} · <a href="#forms">forms</a> · <a href="openapi.json">openapi.json</a></p>'
        f'{sections}<h2 id="forms">Forms</h2>{schemas}</body></html>'
    )


def _anchor(text: str) -> str:
    return escape(text.replace(" ", "-"))


def _text(text: str) -> str:
    """Paragraphs and lists, with `code` marked."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("- "):
            items = paragraph.removeprefix("- ").split("\n- ")
            paragraphs.append(f"<ul>{''.join(f'<li>{_marked(item)}</li>' for item in items)}</ul>")
        else:
            paragraphs.append(f"<p>{_marked(paragraph)}</p>")
    return "".join(paragraphs)


def _marked(text: str) -> str:
    parts = escape(text).replace("``", "`").split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _inline(text: str) -> str:
    return _text(text).removeprefix("<p>").removesuffix("</p>")


def _call(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}"
        f"{', required' if one['required'] else ''}</td><td>{_inline(one['description'])}</td></tr>"
        for one in operation["parameters"]
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows += [
            f"<tr><td>body</td><td>{escape(kind)}</td><td>{_type(content['schema'])}</td></tr>"
            for kind, content in body["content"].items()
        ]
    answers = [
        f"<tr><td>{status}</td><td>{_types(answer)}</td>"
        f"<td>{_inline(answer['description'])}</td></tr>"
        for status, answer in sorted(operation["responses"].items())
    ]
    asked = f"<table><tr><th>Asks</th><th></th><th></th></tr>{''.join(rows)}</table>"
    return (
        f'<details id="{escape(operation["operationId"])}"><summary>'
        f'<span class="method">{method.upper()}</span> <span class="path">{escape(path)}</span> '
        f"{_inline(operation['summary'])}</summary>{_text(operation['description'])}"
        f"{asked if rows else ''}"
        f"<table><tr><th>Answers</th><th></th><th></th></tr>{''.join(answers)}</table></details>"
    )


def _types(answer: dict[str, Any]) -> str:
    return ", ".join(
        f"{escape(kind)} {_type(content['schema'])}"
        for kind, content in answer.get("content", {}).items()
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(kind)}</td>"
        f"<td>{'required' if field in required else _default(kind)}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    return (
        f'<details id="form-{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"{_text(schema.get('description', ''))}<table>{rows}</table></details>"
    )


def _default(schema: Any) -> str:
    if "default" not in schema:
        return ""
    return f"default <code>{escape(json.dumps(schema['default']))}</code>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type(schema: Any) -> str:
    """In few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#form-{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(_value(value))}</code>" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if not isinstance(kind, str):
        return " or ".join(kind)
    words = [kind]
    if "format" in schema:
        words.append(f"({schema['format']})")
    for name, sign in (("minimum", "≥"), ("exclusiveMinimum", "&gt;"), ("maximum", "≤")):
        if name in schema:
            words.append(f"{sign} {_value(schema[name])}")
    return " ".join(words)
