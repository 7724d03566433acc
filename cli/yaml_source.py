"""YAML with its traps closed: a text becomes plain values that know the line they were written on, and back.

Three things differ from the YAML that most libraries read, so that a value is what its reader takes it for:
`1e-3` is a number; `yes`, `no`, `on`, `off`, dates, `1_000`, `0x1F`, `017` and `1:30` are text; a key is always text.
Anchors, aliases, merge keys and tags are refused.
"""

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

YamlValue: TypeAlias = bool | int | float | str | list["YamlValue"] | dict[str, "YamlValue"] | None
KeyPath: TypeAlias = tuple[str, ...]

MAX_DEPTH = 10
"""Levels of nesting; the deepest that a configuration needs is three."""

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Python refuses to convert integers of thousands of digits; such a word stays text.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,999})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

_REFUSED = (
    "anchors (&), aliases (*), merge keys (<<) and tags (!) are not supported: write the value out, "
    "and put a text that begins with such a sign in quotes"
)
_PLAIN_WORDS = (
    (r"found character '\\t'", "a tab; YAML is indented with spaces"),
    (r"found character '(.)' that cannot start", r"a text that begins with \1 needs quotes"),
    ("mapping values are not allowed", "unexpected ': '; is the indentation right, or does a text need quotes?"),
    ("expected <block end>", "does not fit the lines above; is the indentation right, or does a text need quotes?"),
    ("but found another document", "a second document begins here; a file holds one configuration"),
    ("could not find expected ':'", "a key without ': ' after it"),
    ("found unexpected end of stream", "a quote that is never closed"),
    ("expected alphabetic or numeric character", _REFUSED),
    (r"expected ',' or '(.)'", r"a list or mapping in brackets without its , or \1"),
)
"""What PyYAML says, and what it means."""


class YamlError(ValueError):
    """A text that is no YAML, or that uses a part of YAML which is refused; `line` counts from 1."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(frozen=True)
class Place:
    """The line of a key, and the text of its value as it was written."""

    line: int
    text: str


@dataclass
class Source:
    """A YAML text, read: its value, the place of every key, and the keys that were given twice."""

    value: YamlValue = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    duplicates: list[tuple[KeyPath, int, int]] = field(default_factory=list)
    """Key, line of the second time, line of the first."""


def read(text: str) -> Source:
    """The values of a YAML text and their places; raises YamlError."""
    source = Source()
    node = _compose(text)
    if node is not None:
        source.value = _value(node, (), text, source)
    return source


def plain_value(text: str) -> bool | int | float | str | None:
    """What an unquoted word means: null, true or false, a decimal number, else the word itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def dump(value: YamlValue) -> str:
    """A value as YAML that `read` gives back, and that a reader of YAML 1.1 takes for the same types."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"), indent=2))


def dump_inline(value: YamlValue) -> str:
    """A value as YAML on one line, as it would follow a key."""
    in_brackets = yaml.dump([value], Dumper=_Dumper, allow_unicode=True, width=float("inf"), default_flow_style=True)
    return str(in_brackets).strip()[1:-1]


class _Loader(yaml.SafeLoader):
    """Composes nodes one by one, so that what is refused is refused before it can grow."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
            raise YamlError(_REFUSED, line)
        if self.depth == MAX_DEPTH:
            raise YamlError(f"nested more than {MAX_DEPTH} levels deep", line)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    """Quotes every text that would be read as something else, here or by a YAML 1.1 reader."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    needs_quotes = not text.isprintable() or not isinstance(plain_value(text), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if needs_quotes else None)


_Dumper.add_representer(str, _represent_text)


def _compose(text: str) -> yaml.Node | None:
    """The node tree of a text, None when it holds no document; every failure is a YamlError."""
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character {json.dumps(text[error.position])} is not allowed; write it as an escape in quotes"
        raise YamlError(problem, line) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None
    except YamlError:
        raise
    except (ValueError, OverflowError):
        # PyYAML converts the digits of `"\UFFFFFFFF"` and of `%YAML 1.99…9` without looking at them.
        raise YamlError("an escape in quotes or a % line holds an impossible number", loader.line + 1) from None


def _syntax_error(error: yaml.MarkedYAMLError) -> YamlError:
    """PyYAML's complaint in plain words, at the place where what it could not finish began."""
    problem, mark = error.problem or "", error.problem_mark
    if error.context_mark and problem.startswith(("could not find", "found unexpected end")):
        mark = error.context_mark
    for pattern, words in _PLAIN_WORDS:
        if match := re.match(pattern, problem):
            problem = match.expand(words)
            break
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return YamlError(f"not valid YAML at column {column}: {problem}", line)


def _value(node: yaml.Node, path: KeyPath, text: str, source: Source) -> YamlValue:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, text, source)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, str(i)), text, source) for i, item in enumerate(node.value)]
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    return _word(node) if quoted else plain_value(_word(node))


def _mapping(node: yaml.MappingNode, path: KeyPath, text: str, source: Source) -> dict[str, YamlValue]:
    values: dict[str, YamlValue] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError("a key is a word, not a list or a mapping", line)
        if key_node.value == "<<" and not key_node.style:
            raise YamlError(_REFUSED, line)
        key = (*path, _word(key_node))
        if key in source.places:
            source.duplicates.append((key, line, source.places[key].line))
            continue
        source.places[key] = _place(key_node, value_node, text)
        values[key[-1]] = _value(value_node, key, text, source)
    return values


def _word(node: yaml.Node) -> str:
    word = str(node.value)
    if _SURROGATE.search(word):
        problem = f"{json.dumps(word)} holds half a character; write the whole one, as itself or as \\U and 8 digits"
        raise YamlError(problem, node.start_mark.line + 1)
    return word


def _place(start: yaml.Node, value: yaml.Node, text: str) -> Place:
    return Place(start.start_mark.line + 1, text[value.start_mark.index : value.end_mark.index].strip())
