"""One HTML file that shows attention: it works from disk, without a network, and nothing in its data can run.

The page itself is the modules and the style sheet in the folder `page`, which TensorBoard's tab serves as they are.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from transformer.errors import UserError
from transformer.inspection.map_file import Maps, encode_maps

PAGE = Path(__file__).parent / "page"
FIRST_MODULE = "file.js"

BYTES_PER_MB = 1_000_000
MAX_SIDE = 128
"""Longer sentences are pooled, all heads but the chosen ones."""

# Modules are joined into one script by these two rules, and a test keeps the modules to them.
IMPORT = re.compile(r'^import \{ (?P<names>[\w, ]+) \} from "\./(?P<file>\w+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function |const )", re.MULTILINE)

POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
)
DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="viewer"></div>
<noscript>This page draws its pictures with JavaScript, which is switched off.</noscript>
<script type="application/json" id="views">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


class Detail(TypedDict):
    """Maps in full resolution of some heads: [layer, head] each, and the maps in base64."""

    heads: list[list[int]]
    maps: str


class Frame(TypedDict):
    """All heads at one step; `detail` where `maps` is pooled, `report` a line of scores.jsonl."""

    step: int
    maps: str
    detail: Detail | None
    report: Mapping[str, object] | None


def encode_frame(
    step: int,
    weights: Maps,
    *,
    heads: Sequence[tuple[int, int]] = (),
    report: Mapping[str, object] | None = None,
) -> Frame:
    """What the page shows of one step: weights (L, H, T, T) from query to key.

    A sentence of more than MAX_SIDE tokens is pooled, a block of tokens by its largest weight; `heads`, (layer, head)
    each, are there in full resolution as well.
    """
    n_layers, n_heads, tokens, _ = weights.shape
    pool = -(-tokens // MAX_SIDE)
    detail: Detail | None = None
    if pool > 1 and heads:
        chosen = np.stack([weights[layer, head] for layer, head in heads])
        detail = {"heads": [list(head) for head in heads], "maps": _base64(encode_maps(chosen))}
    maps = encode_maps(weights.reshape(n_layers * n_heads, tokens, tokens), pool=pool)
    return {"step": step, "maps": _base64(maps), "detail": detail, "report": report}


def html_page(views: Sequence[Mapping[str, object]], *, budget_mb: float = 10) -> str:
    """The page of one view, or of two against each other.

    A view is what `Record.view` returns. Raises UserError where the page is over its budget.
    """
    data = _json({"views": list(views)})
    style, script = (PAGE / "viewer.css").read_text(encoding="utf-8"), page_script()
    page = DOCUMENT.format(
        policy=POLICY.format(script=_sha256(script), style=_sha256(style)),
        title=_references(" and ".join(dict.fromkeys(str(view["name"]) for view in views)) + " · attention"),
        style=style,
        data=data,
        script=script,
    )
    _check_budget(len(page.encode("utf-8")), budget_mb)
    return page


def page_script() -> str:
    """The modules of the page as one: every import before what needs it, and nothing imported or exported."""
    modules = [f"// {file}\n{_module(file)}" for file in _in_order(FIRST_MODULE, [])]
    return "\n".join([*modules, "openFile();\n"])


def _in_order(file: str, placed: list[str]) -> list[str]:
    """A module after all that it imports, and these after theirs."""
    for needed in IMPORT.finditer((PAGE / file).read_text(encoding="utf-8")):
        if needed["file"] not in placed:
            _in_order(needed["file"], placed)
    placed.append(file)
    return placed


def _module(file: str) -> str:
    return EXPORT.sub("", IMPORT.sub("", (PAGE / file).read_text(encoding="utf-8")))


def _json(value: object) -> str:
    """JSON that a script element holds: no character that ends it, no address, no line end that is none in JSON."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped
    return re.sub("(?i)(h)(?=ttp)", lambda found: f"\\u{ord(found[1]):04x}", text.replace("<", "\\u003c"))


def _references(text: str) -> str:
    """Text as HTML, every character by its number: nothing in it is markup, and no address stands in the page."""
    return "".join(f"&#{ord(character)};" for character in text)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _check_budget(size: int, budget_mb: float) -> None:
    if size > budget_mb * BYTES_PER_MB:
        raise UserError(
            f"the page would have about {size / BYTES_PER_MB:.1f} MB, over its budget of {budget_mb:g} MB.\n"
            "  - look at fewer tokens\n"
            "  - keep fewer heads in full resolution (--heads), or fewer steps of the film (--frames)\n"
            f"  - or allow more: --budget {-(-size // BYTES_PER_MB)}"
        )
