"""Help, exit codes, and the command as a process of its own: its speed, its pipes, its signals, its encoding."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EMPTY_APP = 'import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None:\n    """Nothing."""\napp()\n'

HELP = {
    (): ["train", "evaluate", "generate", "heads", "inspect", "runs", "board", "config"],
    ("train",): ["CONFIG", "--name", "--set", "--resume"],
    ("evaluate",): ["[RUN]", "--text", "--checkpoint", "--stride", "--device", "--json"],
    ("generate",): [
        "[RUN]", "--prompt", "--tokens", "--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty",
        "--stop", "--seed", "--samples", "--interactive", "--checkpoint", "--device", "--json",
    ],
    ("heads",): ["[RUN]", "--checkpoint", "--device", "--json"],
    ("inspect",): [
        "[RUN]", "--text", "--prompt", "--tokens", "--temperature", "--seed", "--film", "--frames", "--against",
        "--heads", "--budget", "--out", "--checkpoint", "--device",
    ],
    ("runs",): ["--json"],
    ("board",): ["[RUN]...", "--port", "--host"],
    ("config",): ["init", "check", "keys", "schema"],
    ("config", "init"): ["FILE"],
    ("config", "check"): ["CONFIG", "--set"],
    ("config", "keys"): ["--markdown"],
    ("config", "schema"): [],
}  # fmt: skip


def command(folder: Path, *arguments: str) -> dict[str, object]:
    """What subprocess needs to run `python -m cli` in a folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "ATTN_CACHE_DIR": str(folder / "cache")}
    return {"args": [sys.executable, "-m", "cli", *arguments], "cwd": folder, "env": environment}


@pytest.mark.parametrize("words", HELP, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_everything_that_can_be_typed(work, words, flag):
    result = work.attn(*words, flag)
    assert (result.code, result.err) == (0, "")
    assert f"Usage: attn {' '.join(words)}".strip() in result.out
    for word in HELP[words]:
        assert word in result.out


def test_every_command_is_in_the_table_above(work):
    listed = work.attn("--help").out.partition("Commands")[2]
    names = {line.split()[1] for line in listed.splitlines() if line.startswith("│ ") and line[2] != " "}
    assert names == set(HELP[()])


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["train"],
        ["train", "tiny.yaml", "extra"],
        ["train", "tiny.yaml", "--steps=3"],
        ["train", "tiny.yaml", "--set"],
        ["evaluate", "--stride=0"],
        ["evaluate", "--stride=x"],
        ["generate", "--tokens=1.5"],
        ["generate", "--temperature=warm"],
        ["board", "--port=http"],
        ["runs", "tiny"],
        ["config"],
        ["config", "nothing"],
    ],
)
def test_words_that_do_not_exist_are_usage_errors(work, arguments):
    result = work.attn(*arguments)
    assert result.code == 2
    assert "Error" in result.err or "Usage" in result.err + result.out
    assert "Traceback" not in result.err
    assert work.run_names() == []


def seconds(arguments: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True)
    return time.perf_counter() - start


def test_help_is_as_quick_as_that_of_an_empty_app(work):
    work.write("empty.py", EMPTY_APP)
    empty = [sys.executable, str(work.folder / "empty.py"), "--help"]
    work.write("ours.py", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom cli.__main__ import main\nmain()\n")
    ours = [sys.executable, str(work.folder / "ours.py"), "--help"]
    for _ in range(3):  # a busy machine may spoil one round
        pairs = [(seconds(ours), seconds(empty)) for _ in range(5)]
        ratio = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
        if ratio <= 1.3:
            break
    assert ratio <= 1.3


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['attn', '--help']\n"
        "from cli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pydantic', 'numpy', 'yaml', 'tqdm', 'tokenizers'} & sys.modules.keys()\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_reader_that_leaves_early_ends_the_text_quietly(trained):
    process = subprocess.Popen(
        **command(trained.folder, "generate", "char", "--tokens=4000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert len(process.stdout.read(5)) == 5
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=30) == 0


def test_the_locale_changes_nothing(trained):
    ascii_only = {
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "LANG": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    settings = command(trained.folder, "generate", "byte", "--interactive", "--tokens=9", "--json")
    settings["env"] |= ascii_only
    result = subprocess.run(**settings, input="é 漢\n".encode(), check=False, capture_output=True)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer == json.loads(trained.attn("generate", "byte", "--prompt=é 漢", "--tokens=9", "--json").out)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_process_saves_and_resume_finishes(work, number, code):
    slow = ["--set=training.max_steps=100000", "--set=training.eval_every=100000", "--set=logging.log_every=1"]
    process = subprocess.Popen(
        **command(work.folder, "train", "tiny.yaml", *slow), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    next(line for line in process.stderr if line.startswith("step 3/"))
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert "interrupted and saved after step" in err
    assert "Traceback" not in err
    step = work.metrics()[-1]["step"]
    resumed = work.train("--resume", training__max_steps=step + 2, training__eval_every=100000, logging__log_every=1)
    assert resumed.code == 0, resumed.err
    assert f"resuming at step {step}" in resumed.err
    assert [line["step"] for line in work.metrics() if "loss/train" in line] == list(range(1, step + 3))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(tmp_path, closed):
    process = command(tmp_path, "generate", "--prompt=-")
    process["args"] = ["sh", "-c", f'"$@" {closed}', "sh", *process["args"]]
    done = subprocess.run(**process, input=b"", capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"" if "2>" in closed else done.stderr.startswith(b"error: runs/ holds no run yet")
