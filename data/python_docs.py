"""The built-in corpus `python-docs`: the English that every Python installation carries, without a network.

It is the language reference (`pydoc_data.topics`) and the docstrings of the standard library, whose files are
parsed and never imported. Only paragraphs of prose are kept: examples, grammar, tables and lists of names go.
"""

import ast
import functools
import hashlib
import os
import re
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

FORMAT = 1
"""Raised whenever the selection below changes, so that old encodings of the corpus are not used again."""

SHORTEST_DOCUMENT = 60
"""Characters; shorter texts say little ("Internal method.")."""

_SKIPPED = "__pycache__ dist-packages encodings idlelib lib2to3 pydoc_data site-packages test tests turtledemo"
SKIPPED_FOLDERS = frozenset(_SKIPPED.split())

_COMMON = (
    "a all an and are as at be been both but by can do does each for from has have if in into is it its may more "
    "must no not of on one only or other should so such than that the their them then there these they this to two "
    "used using was when where which while will with without you your"
)
COMMON_WORDS = frozenset(_COMMON.split())

_CODE = re.compile(r">>>|::=|==|&&|[{}\\]|\w\(\w*\) ->|^\s*(\.\.|:\w+|@\w+)", re.MULTILINE)
_WORD = re.compile(r"[(\"'*`“‘]*[A-Za-z]+(?:[-'’/][A-Za-z]+)*[)\"'*`”’]*[.,;:!?)]*")
_UNDERLINE = re.compile(r"^[-=*~^#+]{3,}\n?", re.MULTILINE)


def identity() -> str:
    """What decides the corpus's content, cheaply: this Python (version and build) and the selection's format."""
    return f"python-docs {FORMAT} {sys.version}"


@functools.cache
def documents() -> tuple[str, ...]:
    """Every topic and docstring once; takes a few seconds the first time.

    Their order is fixed but mixed, by a digest of the text: the end of the corpus, which validates, is then of the
    same kind as the rest.
    """
    from pydoc_data.topics import topics

    texts = [topics[name] for name in sorted(topics)]
    texts += docstrings(Path(sysconfig.get_path("stdlib")))
    kept = {prose for text in texts if len(prose := select_prose(text)) >= SHORTEST_DOCUMENT}
    return tuple(sorted(kept, key=lambda prose: hashlib.sha256(prose.encode("utf-8", "surrogatepass")).digest()))


def docstrings(folder: Path) -> Iterator[str]:
    """Docstrings of all modules, classes and functions below a folder, in a fixed order."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".py"):
                yield from _docstrings_of(Path(root, name))


def select_prose(text: str) -> str:
    """The paragraphs of a text that read like English, each without its indentation."""
    paragraphs = re.split(r"\n\s*\n", _UNDERLINE.sub("", text.expandtabs()))
    return "\n\n".join(_trim(paragraph) for paragraph in paragraphs if _is_prose(paragraph))


def _docstrings_of(path: Path) -> Iterable[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in other people's code
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):  # a few files hold deliberate errors
            return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    return [text for text in found if text]


def _trim(paragraph: str) -> str:
    lines = textwrap.dedent(paragraph).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _is_prose(paragraph: str) -> bool:
    """Whether most of a paragraph is plain words, a few of them the small words that sentences need."""
    words = paragraph.split()
    if len(words) < 4 or _CODE.search(paragraph):
        return False
    plain = sum(_WORD.fullmatch(word) is not None for word in words)
    common = sum(word.strip(".,;:()\"'").lower() in COMMON_WORDS for word in words)
    return plain >= 0.75 * len(words) and common >= 0.15 * len(words)
