"""What is wrong with a configuration, in words: the place, the key, its value, the rule, the nearest valid key."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from cli.config_reference import KeyInfo, find_key, keys, section_models
from cli.yaml_source import KeyPath, dump_inline, plain_value

LONGEST_TEXT = 60
"""Characters of a key or value that a message shows."""

_BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}


@dataclass(frozen=True)
class Given:
    """Where a key was given, and the text of its value."""

    order: int
    """Problems are told in this order: lines of the file, then overrides."""
    place: str
    """The file and line, or the override in full."""
    text: str | None
    """None where the place shows it already."""


@dataclass(frozen=True, order=True)
class Problem:
    """One line of a message, and its rank."""

    order: int
    message: str


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """A user's text on one line of a message: spaces joined, cut short, odd characters escaped."""
    line = " ".join(text[: longest + 1].split())
    line = line if len(line) <= longest else f"{line[:longest]}…"
    return line if line.isprintable() else json.dumps(line)


def dotted(key: KeyPath) -> str:
    """A key of a file as messages write it."""
    return ".".join(shown(part) or '""' for part in key)


def explain(errors: Iterable[ErrorDetails], given: Mapping[KeyPath, Given], file: str) -> list[Problem]:
    """A problem for every key that the models refuse; `file` is the place of what was given nowhere."""
    by_key: dict[KeyPath, ErrorDetails] = {}
    for error in errors:
        # A key whose type is a union has an error for each member; the first stands for all.
        depth = 2 if error["loc"][:1] and error["loc"][0] in section_models() else 1
        by_key.setdefault(tuple(str(part) for part in error["loc"][:depth]), error)
    return [_problem(key, error, given, file) for key, error in by_key.items()]


def unknown_key(key: KeyPath) -> str:
    """The rule that a key breaks which does not exist, with the key that was probably meant."""
    written_dotted = find_key(key[-1])
    if written_dotted and written_dotted.section:
        return f"unknown key; write {written_dotted.name} under {written_dotted.section}:"
    meant = _nearest_key(key)
    return f"unknown key; {f'did you mean {meant}?' if meant else '`attn config keys` lists all'}"


def _problem(key: KeyPath, error: ErrorDetails, given: Mapping[KeyPath, Given], file: str) -> Problem:
    here = given.get(key)
    rule = _rule(key, error, here)
    place = here or _nearest_place(key, rule, given) or Given(0, file, None)
    return Problem(place.order, ": ".join(filter(None, (place.place, _subject(key, error["type"], here), rule))))


def _subject(key: KeyPath, kind: str, here: Given | None) -> str:
    """The key and its value; empty where the place shows both."""
    if here is None:
        info = find_key(".".join(key))
        return f"{dotted(key)} = {dump_inline(info.default)} (the default)" if info else dotted(key)
    if here.text is None:
        return ""
    return dotted(key) if kind == "extra_forbidden" else f"{dotted(key)} = {shown(here.text or 'null')}"


def _rule(key: KeyPath, error: ErrorDetails, here: Given | None) -> str:
    kind = error["type"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "extra_forbidden":
        return unknown_key(key)
    if kind == "model_type":
        return "must be a section: its keys on lines of their own, indented"
    if info := find_key(".".join(key)):
        return f"must be {info.accepts}{_hint(error['input'], info, here)}"
    return error["msg"]


def _hint(value: object, info: KeyInfo, here: Given | None) -> str:
    """What to write instead, where that is plain to see."""
    if isinstance(value, str) and str not in info.members:
        is_quoted = here is not None and (here.text or "")[:1] in ("'", '"')
        if is_quoted and not isinstance(plain_value(value), str):
            return "; remove the quotes"
        if not info.members.isdisjoint((int, float)) and re.match(r"[-+]?\.?[0-9]", value):
            return "; write it in decimal digits, without separators or units"
        if bool in info.members and value.lower() in _BOOLEANS:
            return f"; write {_BOOLEANS[value.lower()]}"
    elif isinstance(value, float) and not math.isfinite(value):
        return "; infinity and NaN are none"
    elif int in info.members and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"; write {value:.0f}"
    elif str in info.members and isinstance(value, bool | int | float):
        return "; put it in quotes"
    return ""


def _nearest_key(key: KeyPath) -> str | None:
    """The dotted key that resembles a wrong one: of that name elsewhere, else similar nearby, else similar."""
    section = key[0] if len(key) > 1 else ""
    near = {info.name: info.key for info in keys() if info.section == section}
    if not section:
        near |= {name: name for name in section_models()}
    anywhere = {info.name: info.key for info in keys()} | {name: name for name in section_models()}
    name = key[-1].lower()
    if name in near or name in anywhere:
        return near.get(name) or anywhere[name]
    for names in (near, anywhere):
        if match := get_close_matches(name, names, n=1):
            return names[match[0]]
    return None


def _nearest_place(key: KeyPath, rule: str, given: Mapping[KeyPath, Given]) -> Given | None:
    """Where to look when a default breaks a rule: a given key that the rule names, else the section."""
    words = re.findall(r"\w+(?:\.\w+)?", rule)
    named = [path for word in words for path in ((*key[:1], word), tuple(word.split(".")))]
    return next((given[path] for path in [*named, key[:1]] if path in given), None)
