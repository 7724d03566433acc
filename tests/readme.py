"""The parts of README.md that follow from the code; `python -m tests.readme` writes them anew."""

import ast
import re
from pathlib import Path

from cli.config_reference import keys_markdown

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PACKAGES = ("transformer", "data", "cli")
WIDTH = 36


def first_sentence(path: Path) -> str:
    """What a module says of itself first, without what stands in brackets."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.split(r"[.;](?:\s|$)", re.sub(r"\s*\([^)]*\)", "", docstring), maxsplit=1)[0]
    return sentence.removesuffix(":").replace("\n", " ")


def tree() -> str:
    """Every module of the three packages, with a line of what it is for."""
    lines = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py"), key=_order):
            relative = path.relative_to(ROOT)
            indent = "  " * (len(relative.parts) - 1)
            name = f"{indent}{relative.name}"
            if path.name == "__init__.py":
                name = f"{indent[2:]}{path.parent.name}/"
            lines.append(f"{name:<{WIDTH}}{first_sentence(path)}".rstrip())
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _order(path: Path) -> list[tuple[bool, str]]:
    """A folder's own line, then its files, then its folders."""
    parts = path.relative_to(ROOT).parts
    return [(True, part) for part in parts[:-1]] + [(False, "" if path.name == "__init__.py" else path.name)]


def with_section(text: str, name: str, content: str) -> str:
    """Replace what stands between two markers."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    assert re.search(pattern, text, re.DOTALL), f"README.md lacks the markers of {name}"
    return re.sub(pattern, lambda match: f"{match[1]}\n{content}\n{match[2]}", text, flags=re.DOTALL)


def updated(text: str) -> str:
    """README.md with its generated parts as they should be."""
    return with_section(with_section(text, "keys", keys_markdown()), "tree", tree())


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
