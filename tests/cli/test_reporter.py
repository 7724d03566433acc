"""What a run tells while it goes: the bar, the words and numbers, and cutting the records back to a step."""

import json
import re

import pytest

from cli.records import forget_after, sample_section
from cli.reporter import describe
from cli.terminal import count, duration, printable
from transformer.inference.evaluation import Evaluation
from transformer.run_folder import RunFolder

LONG = ["--set=training.max_steps=40", "--set=training.eval_every=20"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_bar_shows_where_a_run_is_and_fits_the_terminal(work, columns):
    result = work.attn("train", "tiny.yaml", *LONG, columns=columns)
    assert (result.code, result.out) == (0, "")
    bars = [part for part in re.split(r"[\r\n]", result.err) if re.match(r" *\d+% ", part)]
    assert all(len(bar) <= columns for bar in bars)
    pattern = r"100% █+ 40/40 · 00:00 left"
    if columns >= 80:
        pattern += r" · loss \d\.\d{3} · rate \d\.\de-\d\d · [\d.]+k? tokens/s"
    assert re.match(pattern, bars[-1])


def test_a_bar_replaces_the_lines_of_steps(work):
    result = work.attn("train", "tiny.yaml", *LONG, columns=80)
    assert not re.search(r"^step \d+/40 · loss", result.err, re.MULTILINE)
    assert "step 20 · validation loss" in result.err


@pytest.mark.parametrize(("patience", "is_shown"), [(0.0, True), (3600.0, False)])
def test_a_bar_over_the_text_appears_where_encoding_takes_long_and_goes_again(work, monkeypatch, patience, is_shown):
    monkeypatch.setattr("cli.terminal.PATIENCE", patience)
    said = work.attn("train", "tiny.yaml", columns=80).err
    assert ("characters/s" in said) == is_shown
    assert re.search(r"(^|[\r\n])(\033\[1m)?training tiny", said)


@pytest.mark.parametrize(("terminal", "variable"), [(True, {}), (True, {"NO_COLOR": "1"}), (False, {})])
def test_colours_are_for_terminals_that_want_them(work, terminal, variable):
    work.environment |= variable
    result = work.attn("train", "tiny.yaml", columns=80 if terminal else None)
    assert ("\033[1m" in result.err) == (terminal and not variable)


def test_a_sample_cannot_command_the_terminal(work):
    work.write("evil.txt", "\x1b]0;owned\x07\x1b[2J\x9b" * 99)
    result = work.train(data__source="evil.txt", logging__sample_prompt="", logging__sample_tokens=60)
    assert result.code == 0, result.err
    assert "\\x1b" in result.err
    assert not set(result.err) & {"\x1b", "\x07", "\x9b"}
    assert "\x1b" in (work.run() / "samples.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0:00"), (59.6, "1:00"), (65, "1:05"), (3599.7, "1:00:00"), (7384, "2:03:04"), (360000, "100:00:00")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (950, "950"),
        (999.7, "1k"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_960, "1M"),
        (4.56e6, "4.56M"),
        (1.24e8, "124M"),
        (2e9, "2G"),
        (1.5e12, "1.5T"),
    ],
)
def test_counts(number, words):
    assert count(number) == words


def test_an_evaluation_in_words():
    def said(**values: float) -> str:
        return describe(
            Evaluation(
                **{"loss": 1.5, "tokens": 7, "bits_per_byte": None, "bits_per_character": None, "accuracy": None}
                | values
            )
        )

    assert said() == "loss 1.5000 · perplexity 4.482"
    assert said(bits_per_byte=2.1642) == "loss 1.5000 · perplexity 4.482 · 2.164 bits per byte"
    assert said(accuracy=0.25) == "loss 1.5000 · perplexity 4.482 · accuracy 0.250"


def test_printable_leaves_lines_and_letters_alone():
    assert printable("é漢😀\n\tx") == "é漢😀\n\tx"
    assert printable("\x1b[2J\x07\r\x9b\u202e\u2028") == "\\x1b[2J\\x07\\r\\x9b\\u202e\\u2028"


SAMPLES = ["", "one", "two\nlines", "\n\n", "## Step 99\n", "    indented", "```\n## Step 1\n\n", "a\r\nb\u2028c"]


@pytest.mark.parametrize("step", [0, 1, 4, 5, 99])
def test_records_are_cut_back_to_a_step(tmp_path, step):
    folder = RunFolder(tmp_path)
    sections = {number: sample_section(number, text) for number, text in enumerate(SAMPLES, start=1)}
    folder.samples_file.write_bytes("".join(sections.values()).encode() + b"## Step 100\n\n    cut \xc3")
    lines = {number: json.dumps({"step": number}) + "\n" for number in range(1, 9)}
    folder.metrics_file.write_text("".join(lines.values()) + '{"step"', encoding="utf-8")
    forget_after(folder, step)
    assert folder.samples_file.read_bytes().decode() == "".join(text for n, text in sections.items() if n <= step)
    assert folder.metrics_file.read_text(encoding="utf-8") == "".join(line for n, line in lines.items() if n <= step)


def test_records_that_are_missing_are_no_fault(tmp_path):
    forget_after(RunFolder(tmp_path), 3)
    assert list(tmp_path.iterdir()) == []
