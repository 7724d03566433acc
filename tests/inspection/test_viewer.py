"""The page as a file: what is in it, what is kept out of it, and how large it may be."""

import base64
import hashlib
import html
import json
import re

import numpy as np
import pytest

from transformer.errors import UserError
from transformer.inspection.map_file import decode_maps
from transformer.inspection.viewer import EXPORT, IMPORT, MAX_SIDE, PAGE, encode_frame, html_page, page_script

HOSTILE_TOKENS = [
    "", " ", "\n", "\0", "\u2028", "\u2029", "\ud800", "</script>", "</SCRIPT >", "<!--", "<script>", "]]>", "&lt;",
    "http://a.b", "HTTPS://A.B", "\\http", "'\"`", "나", "\u202eabc", "x" * 10_000,
]  # fmt: skip
MODULES = sorted(PAGE.glob("*.js"))
TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function|const|let|class) (\[[^\]]*\]|\{[^}]*\}|\w+)", re.MULTILINE)


def causal_attention(*shape: int, seed: int = 0) -> np.ndarray:
    """Random rows that sum to 1 over the past: (…, T, T)."""
    weights = np.tril(np.random.default_rng(seed).uniform(0.01, 1, (*shape, shape[-1])))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def view_of(texts: list[str], *, name: str = "run") -> dict[str, object]:
    tokens = [{"text": text, "bytes": None, "special": False} for text in texts]
    frame = encode_frame(5, causal_attention(2, 3, len(texts)))
    shape = {"n_layers": 2, "n_heads": 3, "groups": [], "baseline": {}}
    return {"name": name, **shape, "tokens": tokens, "prompt_length": None, "predictions": None, "frames": [frame]}


def element(page: str, opening: str, closing: str) -> str:
    (content,) = re.findall(f"{opening}(.*?){closing}", page, re.DOTALL)
    return content


def data_in(page: str) -> dict:
    return json.loads(element(page, '<script type="application/json" id="views">', "</script>"))


def names_of(module: str) -> list[str]:
    return [name for found in TOP_LEVEL.findall(module) for name in re.findall(r"\w+", found)]


def maps_in(encoded: str) -> tuple[object, np.ndarray]:
    return decode_maps(base64.b64decode(encoded))


def test_hostile_tokens_are_in_the_page_unchanged_and_end_no_element() -> None:
    view = view_of(HOSTILE_TOKENS, name="</title><script>")
    page = html_page([view])
    assert data_in(page) == {"views": [view]}
    assert page.count("<script") == page.count("</script") == 2
    assert html.unescape(element(page, "<title>", "</title>")) == "</title><script> · attention"


def test_the_page_names_no_address_not_even_one_in_a_token() -> None:
    page = html_page([view_of(HOSTILE_TOKENS, name="http")])
    assert "http" not in page.lower().replace('<meta http-equiv="content-security-policy"', "")


def test_the_policy_allows_the_page_its_own_script_and_style_and_nothing_else() -> None:
    page = html_page([view_of(["a", "b"])])
    policy = element(page, 'http-equiv="Content-Security-Policy" content="', '">')
    script = element(page, '<script type="module">', "</script>")
    style = element(page, "<style>", "</style>")
    script_hash, style_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)
    )
    assert policy.split("; ") == [
        "default-src 'none'", f"script-src 'sha256-{script_hash}'", f"style-src 'sha256-{style_hash}'",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip


def test_a_page_over_its_budget_is_refused_with_an_estimate_and_three_remedies() -> None:
    view = view_of(["a"] * 101)
    size = len(html_page([view]).encode())
    with pytest.raises(UserError, match=f"{size / 1e6:.1f} MB") as error:
        html_page([view], budget_mb=size / 1e6 - 0.001)
    assert [word for word in ("tokens", "--heads", "--budget") if word not in str(error.value)] == []
    html_page([view], budget_mb=size / 1e6 + 0.001)


def test_a_short_sentence_is_kept_weight_by_weight() -> None:
    weights = causal_attention(2, 3, MAX_SIDE)
    frame = encode_frame(0, weights, heads=[(1, 2)])
    header, maps = maps_in(frame["maps"])
    assert (header.pool, header.n_maps, frame["detail"]) == (1, 6, None)
    np.testing.assert_allclose(maps, weights.reshape(6, MAX_SIDE, MAX_SIDE), atol=1e-5)


def test_a_long_sentence_is_pooled_by_its_largest_weights_and_chosen_heads_are_kept_whole() -> None:
    tokens = MAX_SIDE + 3
    weights = causal_attention(2, 3, tokens)
    frame = encode_frame(0, weights, heads=[(1, 2), (0, 1)])
    header, maps = maps_in(frame["maps"])
    assert (header.pool, header.side, header.tokens) == (2, -(-tokens // 2), tokens)
    expected = [[weights[0, 1, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max() for j in range(9)] for i in range(9)]
    np.testing.assert_allclose(maps[1, :9, :9], expected, atol=1e-5)
    assert frame["detail"]["heads"] == [[1, 2], [0, 1]]
    np.testing.assert_allclose(maps_in(frame["detail"]["maps"])[1], weights[[1, 0], [2, 1]], atol=1e-5)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_keeps_to_the_rules_by_which_modules_are_joined(path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("// ")
    assert len(text.splitlines()) < 250
    rest = EXPORT.sub("", IMPORT.sub("", text))
    assert not re.search(r"^\s*(import|export)\b", rest, re.MULTILINE)
    for needed in IMPORT.finditer(text):
        exporter = (PAGE / needed["file"]).read_text(encoding="utf-8")
        exported = [name for line in re.findall(r"^export .*", exporter, re.MULTILINE) for name in names_of(line)]
        assert set(needed["names"].split(", ")) <= set(exported)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|http", text)


def test_the_joined_script_defines_every_name_once() -> None:
    script = page_script()
    names = names_of(script)
    assert sorted(names) == sorted(set(names))
    assert "import " not in re.sub(r"//.*", "", script)


def test_every_module_but_the_tab_s_is_in_the_file() -> None:
    script = page_script()
    missing = {path.name for path in MODULES if f"// {path.name}\n" not in script}
    assert missing == {"tab.js", "index.js"}
