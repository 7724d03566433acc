"""The words of the `attn` command: what can be typed, and its help. What a command does is in its own file.

Nothing heavy is imported here, so that help is instant.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="attn",
    help="Train small Transformers on any text, and watch their attention heads form.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Write, check and explain configuration files.", no_args_is_help=True)
app.add_typer(config_app, name="config")

RUNS = Path("runs")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file, such as configs/quickstart.yaml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in --set model.d_model=256. Repeatable."),
]
RunArgument = Annotated[
    str | None, typer.Argument(metavar="RUN", help="A run's folder or its name under runs/. Default: the newest.")
]
CheckpointOption = Annotated[str, typer.Option("--checkpoint", help="best, last or the step of a checkpoint.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command()
def train(
    config: ConfigFile,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the run under runs/. Default: the file's name.")
    ] = None,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
) -> None:
    """Train a model; its run folder, runs/NAME, then holds everything about it."""
    from cli.config_file import load_config

    loaded = load_config(config, overrides or [])
    from cli.train import train as command  # loads torch, which a faulty file need not wait for

    command(loaded, name=config.stem if name is None else name, exact_name=name is not None, resume=resume, runs=RUNS)


@app.command()
def evaluate(
    run: RunArgument = None,
    text: Annotated[Path | None, typer.Option("--text", help="Score this file, not the validation split.")] = None,
    checkpoint: CheckpointOption = "best",
    stride: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens that windows are apart. Fewer than the context: more past for each token."),
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Measure a run's exact loss, perplexity and bits per byte; of a task, its accuracy too."""
    from cli.evaluate import evaluate as command

    command(run, text=text, checkpoint=checkpoint, stride=stride, device=device, as_json=json, runs=RUNS)


@app.command()
def generate(
    run: RunArgument = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="TEXT", help="Text to continue; - reads it from standard input.")
    ] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=0, help="Tokens to draw, at most.")] = 256,
    temperature: Annotated[
        float, typer.Option(help="0: always the likeliest token; 1: as the model predicts; above: wilder.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens only.")] = None,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that together reach p.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Draw from tokens at least this fraction as likely as the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: tokens that were used become less likely.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text. Repeatable.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63, help="The same seed draws the same text; sample i uses seed + i.")
    ] = 0,
    samples: Annotated[int, typer.Option(min=1, help="Texts to write, side by side.")] = 1,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Ask for prompts until an empty one or Ctrl-D.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Continue a prompt with a run's model. The text goes to stdout while it is drawn.

    An empty prompt begins as a new text. Past the model's context, it goes on from the newest half of it.
    """
    from cli.generate import GenerateOptions
    from cli.generate import generate as command
    from transformer.inference.sampling import Sampling

    options = GenerateOptions(
        n_tokens=tokens,
        sampling=Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        ),
        stop=tuple(stop or ()),
        seed=seed,
        n_samples=samples,
        as_json=json,
    )
    command(run, prompt, options, checkpoint=checkpoint, device=device, interactive=interactive, runs=RUNS)


@app.command()
def heads(
    run: RunArgument = None,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Measure what each attention head does: scores, intervals, badges, and what is lost without it."""
    from cli.heads import heads as command

    command(run, checkpoint=checkpoint, device=device, as_json=json, runs=RUNS)


@app.command()
def inspect(
    run: RunArgument = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="Look at this text. Default: the run's own sentence.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Continue this text, and look at both.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", "-n", min=1, help="Tokens to draw after --prompt. Default: 32.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of drawing after --prompt; 0: always the likeliest. Default: 0.8.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63, help="Of drawing after --prompt. Default: 0.")] = None,
    film: Annotated[
        bool, typer.Option("--film", help="Show every step that was recorded while the run trained.")
    ] = False,
    frames: Annotated[int | None, typer.Option(min=1, help="Steps of --film, at most.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN[@STEP]", help="A second run or checkpoint to compare with: NAME, NAME@100 or @100."),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(metavar="L.H,…", help="Of a long text, heads to keep in full, as in 0.3,1.2; others are pooled."),
    ] = None,
    budget: Annotated[float, typer.Option(metavar="MB", min=0.01, help="Largest file to write.")] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write. Default: attention.html in the run's folder."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="best, last or the step of a checkpoint. Default: best.")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a page to look at attention with: one HTML file that needs no network. Its path goes to stdout."""
    from cli.inspect import InspectOptions
    from cli.inspect import inspect as command

    options = InspectOptions(
        text=text,
        prompt=prompt,
        n_tokens=tokens,
        temperature=temperature,
        seed=seed,
        film=film,
        frames=frames,
        checkpoint=checkpoint,
        against=against,
        heads=heads,
        budget_mb=budget,
        out=out,
    )
    command(run, options, device=device, runs=RUNS)


@app.command()
def runs(json: JsonOption = False) -> None:
    """List all runs, the newest last."""
    from cli.runs import runs as command

    command(RUNS, as_json=json)


@app.command()
def board(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Runs to show. Default: all under runs/.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 6006,
    host: Annotated[str, typer.Option(help="Address to serve on. The default is seen from this machine only.")] = (
        "localhost"
    ),
) -> None:
    """Open TensorBoard on runs: losses, samples and every attention map."""
    from cli.board import board as command

    command(names or [], port=port, host=host, runs=RUNS)


@config_app.command("init")
def config_init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; an existing one is kept.")],
) -> None:
    """Write a commented starter file."""
    from cli.config_commands import init

    init(file)


@config_app.command("check")
def config_check(config: ConfigFile, overrides: Overrides = None) -> None:
    """Check a file, and tell what would run: parameters, tokens, steps, epochs, memory."""
    from cli.config_commands import check

    check(config, overrides or [])


@config_app.command("keys")
def config_keys(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the tables of the README.")] = False,
) -> None:
    """List every key with its meaning, default and range."""
    from cli.config_commands import keys

    keys(as_markdown=markdown)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of configuration files, for editors."""
    from cli.config_commands import schema

    schema()
