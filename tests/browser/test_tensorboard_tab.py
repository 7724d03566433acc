"""The tab Attention in a real browser, over a run that grows while it is looked at."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from transformer.inspection.record import Record, StoredProbe

pytestmark = pytest.mark.browser

WORDS = ["the", " cat", " sat", " on", " the", " mat", "</script>"]


def weights_of(step: int) -> np.ndarray:
    """Maps of one layer and two heads: (1, 2, T, T)."""
    weights = np.tril(np.random.default_rng(step).random((1, 2, len(WORDS), len(WORDS))))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a run that has begun."""
    run = tmp_path / "runs" / "growing"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    record = Record(run / "inspection")
    record.write_probe(
        StoredProbe.model_validate(
            {
                "n_layers": 1,
                "n_heads": 2,
                "sentence": list(range(len(WORDS))),
                "tokens": [{"text": word, "bytes": None, "special": False} for word in WORDS],
                "groups": [],
                "repeats": [[0, 0]],
                "periods": [1],
                "text": [[0, 0]],
                "baseline": {},
            }
        )
    )
    record.write_maps(0, weights_of(0))
    return record


@contextmanager
def tensorboard(logdir: Path) -> Iterator[str]:
    """The stock command; gives its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port=0", "--host=127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stderr is not None
            yield next(match[0] for line in process.stderr if (match := re.search(r"http://\S+/", line)))
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails the test where one of its scripts does."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def shown_weights(frame: FrameLocator) -> list[float]:
    """What every token that the locked one can see is shown to receive."""
    return [float(text) for text in frame.locator(".token .weight").all_text_contents() if text]


def test_a_run_is_watched_while_it_grows(record: Record, tmp_path: Path, page: Page) -> None:
    with tensorboard(tmp_path / "runs") as address:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.get_by_role("tab", name="Attention").click()
        frame = page.frame_locator("iframe").first

        tokens = frame.locator(".token .text")
        tokens.first.wait_for()
        assert tokens.all_text_contents() == WORDS

        frame.locator(".token").nth(4).click()
        assert shown_weights(frame) == pytest.approx(list(weights_of(0)[0, 0, 4, :5]), abs=0.006)

        record.write_maps(500, weights_of(500))
        frame.get_by_text("step 500").first.wait_for(timeout=15_000)
        expect(frame.locator(".token .weight").nth(2)).to_have_text(
            re.compile(f"{weights_of(500)[0, 0, 4, 2]:.2f}".lstrip("0").replace(".", r"\."))
        )
        assert shown_weights(frame) == pytest.approx(list(weights_of(500)[0, 0, 4, :5]), abs=0.006)
        assert {url for url in requests if not url.startswith((address, "data:", "blob:"))} == set()


def test_a_damaged_record_is_said_in_words_and_no_key_breaks_the_page(
    record: Record, tmp_path: Path, page: Page
) -> None:
    record.map_file(0).write_bytes(b"no maps")
    with tensorboard(tmp_path / "runs") as address:
        page.goto(address)
        page.get_by_role("tab", name="Attention").click()
        frame = page.frame_locator("iframe").first
        expect(frame.get_by_role("alert")).to_contain_text(re.compile(r"step_00000000\.bin: holds no attention maps"))
        for key in ("]", "c", "p", "ArrowRight"):
            frame.locator("body").press(key)


def test_the_tab_appears_without_a_restart_once_there_is_a_record(record: Record, tmp_path: Path, page: Page) -> None:
    hidden = tmp_path / "elsewhere"
    (tmp_path / "runs" / "growing").rename(hidden)
    with tensorboard(tmp_path / "runs") as address:
        page.goto(address)
        page.get_by_text("No dashboards are active").wait_for()
        assert page.get_by_role("tab", name="Attention").count() == 0
        hidden.rename(tmp_path / "runs" / "growing")
        page.locator(".reload-button").click()
        page.get_by_role("tab", name="Attention").wait_for()
        page.close()  # before its server ends
