import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from data import python_docs
from data.corpora import open_corpus

Write = Callable[[str, str | bytes], Path]


def test_the_corpus_is_a_megabyte_of_distinct_prose() -> None:
    documents = python_docs.documents()

    assert sum(map(len, documents)) > 1_000_000
    assert len(set(documents)) == len(documents) > 2000
    assert all(len(text) >= python_docs.SHORTEST_DOCUMENT for text in documents)
    assert not any(sign in text for text in documents for sign in (">>>", "::=", "\t", "\r", "\n\n\n"))
    letters = sum(character.isalpha() or character.isspace() for text in documents for character in text)
    assert letters / sum(map(len, documents)) > 0.93
    assert [piece.text for piece in open_corpus("python-docs").pieces()] == list(documents)


def test_files_are_parsed_in_order_and_never_imported(write: Write, folder: Path) -> None:
    write(
        "lib/b.py",
        '"""Module b."""\nraise SystemExit\nclass C:\n    """Class C."""\n    def f(self):\n        """Method f."""',
    )
    write("lib/a/z.py", 'async def g():\n    """Coroutine g,\n\n      indented.\n    """\nx = "\\d"\n')
    write("lib/broken.py", '"""Broken."""\nclass')
    write("lib/latin.py", b'"""caf\xe9"""')
    for skipped in ("test", "site-packages/torch", "a/tests", "encodings"):
        write(f"lib/{skipped}/m.py", '"""Skipped."""')

    found = list(python_docs.docstrings(folder / "lib"))

    assert found == ["Module b.", "Class C.", "Method f.", "Coroutine g,\n\nindented."]


def test_only_paragraphs_of_prose_are_kept() -> None:
    text = (
        "Return the largest of the values.\n"
        "*********************************\n\n"
        "    It is an error if there are none of them,   \n      or if one is not a number.\n\n"
        ">>> largest([1, 2]) is the same as the last of them\n2\n\n"
        "   expr ::= term and the rest of it\n\n"
        "name     value     size     kind     other\nabc      def       ghi      jkl      mno\n\n"
        "Internal method."
    )

    assert python_docs.select_prose(text) == (
        "Return the largest of the values.\n\nIt is an error if there are none of them,\n  or if one is not a number."
    )


def test_reading_the_identity_parses_nothing() -> None:
    program = (
        "import sys; from data.corpora import open_corpus; open_corpus('python-docs').identity();"
        "assert 'pydoc_data.topics' not in sys.modules and 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)
