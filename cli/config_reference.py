"""Every configuration key, told from the models: for the terminal, the README, editors and a starter file."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from cli.config import Config
from cli.yaml_source import YamlValue, dump_inline

WIDTH = 100
"""Columns of the terminal's table and of the starter file."""

STARTER_KEYS = frozenset(
    (
        "data.source",
        "model.d_model",
        "model.n_layers",
        "model.n_heads",
        "model.context_length",
        "training.max_steps",
        "training.batch_size",
        "training.learning_rate",
    )
)
"""Keys that a starter file sets; the others are there as comments."""

_TYPES: dict[object, str] = {int: "a whole number", float: "a number", str: "text"}
_LIMITS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))


@dataclass(frozen=True)
class KeyInfo:
    """One key of a configuration file."""

    section: str
    """Empty for the keys at the top of the file."""
    name: str
    type: str
    """What it holds, in plain words, or its choices: "a whole number", "adamw or muon"."""
    range: str
    """Limits of the value in plain words, often empty: "at least 1"."""
    accepts: str
    """Type, range and null in one phrase, as in "must be ..."."""
    default: YamlValue
    description: str
    members: frozenset[object]
    """The Python types of its values: int, float, bool, str, list, Literal, NoneType."""

    @property
    def key(self) -> str:
        """The dotted key."""
        return f"{self.section}.{self.name}" if self.section else self.name


@cache
def keys() -> tuple[KeyInfo, ...]:
    """Every key, in the order of the models: those at the top, then section by section."""
    top = [_key_info("", name, field) for name, field in Config.model_fields.items() if not _model(field)]
    inner = [
        _key_info(section, name, field)
        for section, model in section_models().items()
        for name, field in model.model_fields.items()
    ]
    return (*top, *inner)


def find_key(key: str) -> KeyInfo | None:
    """What is known of a dotted key; None for a section or no key at all."""
    return next((info for info in keys() if info.key == key), None)


@cache
def section_models() -> dict[str, type[BaseModel]]:
    """The model of every section, by the section's name."""
    models = {name: _model(field) for name, field in Config.model_fields.items()}
    return {name: model for name, model in models.items() if model}


def keys_table() -> str:
    """Every key with its meaning, values and default, as plain text for a terminal."""
    column = max(len(key.key) for key in keys()) + 4
    lines: list[str] = []
    for section, members in _by_section():
        lines += ["", f"{section}: {_section_description(section)}" if section else "At the top of the file:"]
        for key in members:
            meaning = textwrap.wrap(key.description, WIDTH - column)
            values = textwrap.wrap(f"{key.accepts}; default {dump_inline(key.default)}", WIDTH - column)
            for head, text in zip([f"  {key.key}", *[""] * WIDTH], meaning + values, strict=False):
                lines.append(f"{head:{column}}{text}")
    return "\n".join(lines[1:]) + "\n"


def keys_markdown() -> str:
    """Every key as Markdown, one table per section."""
    blocks: list[str] = []
    for section, members in _by_section():
        title = f"`{section}:` {_section_description(section)}" if section else "At the top of the file."
        rows = [
            f"| `{key.name}` | `{dump_inline(key.default)}` | {_cell(key.accepts)} | {_cell(key.description)} |"
            for key in members
        ]
        blocks.append("\n".join([title, "", "| key | default | values | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"


def json_schema() -> dict[str, YamlValue]:
    """A JSON Schema of configuration files, for editors that complete and check YAML."""
    schema: dict[str, YamlValue] = Config.model_json_schema(schema_generator=_UntitledSchema)
    sections = schema["$defs"]
    assert isinstance(sections, dict)
    for section in sections.values():
        assert isinstance(section, dict)
        # A section whose keys are all commented out is null, and accepted.
        section["type"] = ["object", "null"]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": "attn configuration"}


def json_schema_text() -> str:
    """`json_schema` as the text of configs/schema.json."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def starter(schema: str = "schema.json") -> str:
    """A commented configuration to begin with; `schema` is the path or address of the JSON Schema, for editors."""
    lines = [
        f"# yaml-language-server: $schema={schema}",
        "# Every key has a default. Remove the # before a key to change it.",
    ]
    for section, members in _by_section():
        indent = "  " if section else ""
        lines += ["", *([f"{section}:  # {_section_description(section)}"] if section else [])]
        for key in members:
            comment = f"{indent}# "
            lines += textwrap.wrap(key.description, WIDTH, initial_indent=comment, subsequent_indent=comment)
            start = indent if key.key in STARTER_KEYS else comment
            lines.append(f"{start}{key.name}: {dump_inline(key.default)}  # {key.accepts}")
    return "\n".join(lines) + "\n"


class _UntitledSchema(GenerateJsonSchema):
    """Leaves out titles: they only repeat the keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _by_section() -> Iterator[tuple[str, Iterable[KeyInfo]]]:
    return groupby(keys(), key=lambda key: key.section)


def _section_description(section: str) -> str:
    return Config.model_fields[section].description or ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _model(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None for a plain key."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _key_info(section: str, name: str, field: FieldInfo) -> KeyInfo:
    members = _union_members(field.annotation)
    values = [word for member in members if member is not type(None) for word in _words(member)]
    limits = ", ".join(_limits(field))
    alternatives = [f"{_any_of(values)} ({limits})"] if limits else values
    return KeyInfo(
        section=section,
        name=name,
        type=_any_of(values),
        range=limits,
        accepts=_any_of([*alternatives, *(["null"] if type(None) in members else [])]),
        default=field.default,
        description=field.description or "",
        members=frozenset(get_origin(member) or member for member in members),
    )


def _union_members(annotation: object) -> tuple[object, ...]:
    is_whole = isinstance(annotation, type) or get_origin(annotation) in (Literal, list)
    return (annotation,) if is_whole else get_args(annotation)


def _words(member: object) -> list[str]:
    """What a member of a key's type accepts, in plain words."""
    if get_origin(member) is Literal:
        return [dump_inline(choice) for choice in get_args(member)]
    if get_origin(member) is list:
        return ["a list of texts"]
    return ["true", "false"] if member is bool else [_TYPES[member]]


def _any_of(words: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _limits(field: FieldInfo) -> Iterator[str]:
    for rule in field.metadata:
        if getattr(rule, "min_length", None):
            yield "not empty"
        for name, words in _LIMITS:
            limit = getattr(rule, name, None)
            if limit is not None:
                yield f"{words} {_number(limit)}"


def _number(limit: float) -> str:
    """A limit as a person writes it: 2^63 rather than its nineteen digits."""
    bits = int(limit).bit_length() - 1
    return f"2^{bits}" if bits > 32 and limit == 2**bits else f"{limit:.15g}"
