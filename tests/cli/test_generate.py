"""`attn generate`: prompts are taken literally, stdout carries the text alone, and a seed decides it."""

import json

import pytest


def generated(work, *arguments: str, stdin: bytes = b"") -> str:
    result = work.attn("generate", *arguments, stdin=stdin)
    assert result.code == 0, result.err
    return result.out


def answers(work, *arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in generated(work, *arguments, "--json").splitlines()]


PROMPTS = [
    "-x",
    "--tokens",
    "a: b",
    "a=b",
    'say "hi"',
    "it's",
    " two  ",
    "é 漢 😀",
    "<|endoftext|>",
    "\\n",
    "line\nline",
    "$HOME",
]


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("name", ["byte", "bpe"])
def test_a_prompt_is_taken_literally(trained, name, prompt):
    (answer,) = answers(trained, name, f"--prompt={prompt}", "--tokens=3")
    assert answer["prompt"] == prompt
    assert generated(trained, name, f"--prompt={prompt}", "--tokens=3") == f"{prompt}{answer['text']}\n"
    assert generated(trained, name, "--prompt=-", "--tokens=3", stdin=prompt.encode()) == f"{prompt}{answer['text']}\n"


@pytest.mark.parametrize("name", ["bpe", "byte", "char", "task"])
def test_an_empty_prompt_begins_a_new_text(trained, name):
    (answer,) = answers(trained, name, "--tokens=23")
    assert answer["prompt"] == ""
    assert answer["tokens"] == 23
    result = trained.attn("generate", name, "--tokens=23")
    assert (result.code, result.out, result.err) == (0, f"{answer['text']}\n", "")


def test_json_carries_every_promised_key(trained):
    (answer,) = answers(trained, "char", "--prompt=the", "--tokens=5", "--seed=7")
    assert {"prompt", "text", "tokens", "seed"} <= answer.keys()
    assert (answer["prompt"], answer["tokens"], answer["seed"], len(answer["text"])) == ("the", 5, 7, 5)


@pytest.mark.parametrize("tokens", [0, 1, 16, 17, 61])
def test_exactly_the_tokens_asked_for_are_drawn_past_the_context_too(trained, tokens):
    assert len(generated(trained, "char", "--prompt=the fox", f"--tokens={tokens}")) == len("the fox") + tokens + 1


def test_a_seed_decides_the_text(trained):
    draw = ["char", "--tokens=40", "--temperature=1"]
    assert generated(trained, *draw, "--seed=3") == generated(trained, *draw, "--seed=3")
    assert generated(trained, *draw, "--seed=3") != generated(trained, *draw, "--seed=4")


@pytest.mark.parametrize("name", ["char", "bpe"])
def test_sample_i_is_what_its_seed_draws_alone(trained, name):
    together = answers(trained, name, "--prompt=the", "--tokens=31", "--samples=3", "--seed=5")
    alone = [answers(trained, name, "--prompt=the", "--tokens=31", f"--seed={seed}")[0] for seed in (5, 6, 7)]
    assert together == alone
    shown = trained.attn("generate", name, "--prompt=the", "--tokens=31", "--samples=3", "--seed=5")
    assert shown.out == "".join(f"the{answer['text']}\n" for answer in alone)
    assert shown.err.splitlines() == [f"--- seed {seed} ---" for seed in (5, 6, 7)]


def test_temperature_zero_needs_no_seed(trained):
    texts = {generated(trained, "char", "--temperature=0", f"--seed={seed}", "--tokens=20") for seed in (0, 1)}
    assert texts == {generated(trained, "char", "--top-k=1", "--tokens=20")}


@pytest.mark.parametrize("option", ["--top-k=1", "--top-p=0", "--min-p=1"])
def test_the_tightest_filter_is_the_likeliest_token(trained, option):
    greedy = generated(trained, "char", "--temperature=0", "--tokens=20")
    assert generated(trained, "char", option, "--temperature=1", "--tokens=20") == greedy


@pytest.mark.parametrize(
    "option", ["--temperature=2", "--top-k=2", "--top-p=0.1", "--min-p=0.9", "--repetition-penalty=5"]
)
def test_every_option_of_drawing_has_an_effect(trained, option):
    draw = ["char", "--tokens=60", "--temperature=1"]
    assert generated(trained, *draw, option) != generated(trained, *draw)


def test_a_stop_text_ends_before_itself(trained):
    (whole,) = answers(trained, "char", "--tokens=60")
    stop = whole["text"][20:22]
    (cut,) = answers(trained, "char", "--tokens=60", f"--stop={stop}", "--stop=never this")
    assert cut["text"] == whole["text"][: whole["text"].index(stop)]
    assert cut["finish"] == "stop"
    assert generated(trained, "char", "--tokens=60", f"--stop={stop}") == cut["text"] + "\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--temperature=nan"], "temperature must be a number of at least 0"),
        (["--temperature=-1"], "temperature must be"),
        (["--temperature=inf"], "temperature must be"),
        (["--top-k=0"], "top_k must be at least 1"),
        (["--top-k=-3"], "top_k must be at least 1"),
        (["--top-p=1.5"], "top_p must lie between 0 and 1"),
        (["--top-p=nan"], "top_p must lie"),
        (["--min-p=-0.1"], "min_p must lie"),
        (["--repetition-penalty=0"], "repetition_penalty must be above 0"),
        (["--stop="], "--stop: a stop text needs at least one character"),
        (["--prompt=é and ß"], "é (U+00E9)"),
        (["--prompt=\udcff"], "U+DCFF"),
        (["--checkpoint=7"], "no checkpoint of step 7"),
        (["--checkpoint=" + "9" * 5000], "must be best, last or the step"),
        (["--device=gpu"], "--device gpu"),
        (["--interactive", "--prompt=the"], "--prompt: has no effect with --interactive"),
    ],
)
def test_what_cannot_be_drawn_is_refused(trained, arguments, said):
    assert said in trained.attn("generate", "char", *arguments).refused()


@pytest.mark.parametrize(
    "arguments", [["--seed=-1"], ["--seed=99999999999999999999"], ["--tokens=-1"], ["--samples=0"], ["--top-k=x"]]
)
def test_a_number_that_is_none_is_a_usage_error(trained, arguments):
    result = trained.attn("generate", "char", *arguments)
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err


def test_the_largest_seed_works_for_every_sample(trained):
    assert len(answers(trained, "char", f"--seed={2**63}", "--samples=3", "--tokens=2")) == 3


def test_standard_input_that_is_no_utf8_is_refused_with_its_offset(trained):
    message = trained.attn("generate", "byte", "--prompt=-", stdin=b"abc\xff").refused()
    assert "standard input: byte 3" in message


def test_interactive_answers_line_by_line_and_goes_on_after_a_mistake(trained):
    for end in (b"", b"\nthe\n"):
        result = trained.attn(
            "generate",
            "char",
            "-i",
            "--tokens=4",
            stdin="the\né\n\udcff\nfox\n".encode("utf-8", "surrogateescape") + end,
        )
        assert result.code == 0
        expected = [generated(trained, "char", f"--prompt={prompt}", "--tokens=4") for prompt in ("the", "fox")]
        assert result.out == "".join(expected)
        assert result.err.count("error: the vocabulary has no ") == 2
        assert "Traceback" not in result.err
