"""A configuration file and `--set` overrides become a checked Config, and a Config becomes a file again."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from cli.config import Config
from cli.config_problems import Given, Problem, dotted, explain, shown, unknown_key
from cli.config_reference import KeyInfo, find_key, section_models
from cli.errors import ConfigError
from cli.yaml_source import KeyPath, Source, YamlError, YamlValue, dump, read

MAX_BYTES = 100_000
"""A larger file is no configuration, and reading it as one would take minutes."""
MAX_PROBLEMS = 20
"""Problems told at once."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration of a YAML file with `key=value` overrides applied; raises ConfigError.

    Precedence: defaults < file < overrides, and of two overrides of one key the last.
    """
    file = shown(str(path), longest=1000)
    source = _read_file(path, file)
    values = _sections(source, file)
    given = {key: Given(place.line, f"{file}:{place.line}", place.text) for key, place in source.places.items()}
    problems = [
        Problem(line, f"{file}:{line}: {dotted(key)}: given twice; first on line {first}")
        for key, line, first in source.duplicates
    ]
    problems += _apply(overrides, values, given)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        problems += explain(error.errors(include_url=False), given, file)
    if problems:
        raise ConfigError(_message(problems))
    return config


def to_yaml(config: Config, header_lines: Sequence[str] = ()) -> str:
    """Every key of a configuration as YAML that loads back equal, under comment lines."""
    values = config.model_dump()
    top = {name: value for name, value in values.items() if name not in section_models()}
    sections = [{name: values[name]} for name in section_models()]
    header = "".join(f"# {shown(line, longest=1000)}\n" for line in header_lines)
    return header + "\n".join(dump(block) for block in (top, *sections))


def differences(old: Mapping[str, YamlValue], new: Mapping[str, YamlValue]) -> list[tuple[str, YamlValue, YamlValue]]:
    """Dotted key, old and new value of every key that differs; a key that one side lacks is None there."""
    before, after = dict(_flat(old)), dict(_flat(new))
    names = dict.fromkeys((*after, *before))
    pairs = ((name, before.get(name), after.get(name)) for name in names)
    return [(name, was, now) for name, was, now in pairs if was != now]


def _flat(values: Mapping[str, YamlValue], prefix: str = "") -> Iterator[tuple[str, YamlValue]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _message(problems: list[Problem]) -> str:
    lines = [problem.message for problem in sorted(problems)]
    more = len(lines) - MAX_PROBLEMS
    return "\n".join([*lines[:MAX_PROBLEMS], *([f"... and {more} more"] if more > 0 else [])])


def _read_file(path: Path, file: str) -> Source:
    try:
        if path.is_dir():
            raise ConfigError(f"{file}: is a folder; name a YAML file in it")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file{_similar_files(path)}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than {MAX_BYTES:,} bytes, which no configuration is; is it a text?")
    try:
        return read(content.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{content[error.start]:02x} at offset {error.start:,}"
        raise ConfigError(f"{file}:{line}: not UTF-8 ({byte}); save the file as UTF-8") from None
    except YamlError as error:
        raise ConfigError(f"{file}:{error.line}: {error}") from None


def _similar_files(path: Path) -> str:
    """A hint at a configuration of nearly that name, beside the path or in configs/."""
    folders = dict.fromkeys((path.parent, Path("configs")))
    files = [file for folder in folders for file in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml")))]
    match = get_close_matches(path.stem, [file.stem for file in files], n=1)
    return next((f"; did you mean {file}?" for file in files if file.stem in match), "")


def _sections(source: Source, file: str) -> dict[str, YamlValue]:
    """The values of a file, a section without keys being one of defaults."""
    if source.value is None:
        raise ConfigError(f"{file}: is empty; write at least one key, such as seed: 1337")
    if not isinstance(source.value, dict):
        raise ConfigError(f"{file}: must be lines of `key: value`, not a list or a single value")
    return {name: {} if value is None and name in section_models() else value for name, value in source.value.items()}


def _apply(overrides: Sequence[str], values: dict[str, YamlValue], given: dict[KeyPath, Given]) -> list[Problem]:
    """Puts overrides into the values and their places into `given`; the problems of those that cannot be."""
    problems = []
    for number, override in enumerate(overrides):
        # No file has as many lines as this: overrides come after all of them.
        order, place = MAX_BYTES + number, f"--set {shown(override)}"
        try:
            key, value = _parse_override(override)
        except ConfigError as error:
            problems.append(Problem(order, f"{place}: {error}"))
            continue
        *sections, name = key
        target = values.setdefault(sections[0], {}) if sections else values
        # A section that the file gives as something else is a problem of its own.
        if isinstance(target, dict):
            target[name] = value
            given[key] = Given(order, place, None)
    return problems


def _parse_override(override: str) -> tuple[KeyPath, YamlValue]:
    """The key and value of `key=value`; raises ConfigError with the rule that it breaks."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not name:
        raise ConfigError("must be key=value, such as training.max_steps=500")
    if name in section_models():
        first = next(iter(section_models()[name].model_fields))
        raise ConfigError(f"{name} is a section; name one of its keys, such as {name}.{first}=...")
    info = find_key(name)
    key = tuple(name.split("."))
    if info is None:
        raise ConfigError(unknown_key(key))
    return key, _override_value(text, info)


def _override_value(text: str, info: KeyInfo) -> YamlValue:
    """What an override's text means: for a key that holds text, the text itself; else YAML.

    A key that holds text also takes `null` and `[a, list]` where its type has them, and text in YAML's quotes.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError("is not valid UTF-8") from None
    try:
        value = read(text).value
    except YamlError:
        # Text for a key that holds text; for another the models refuse it with their rule.
        return text
    if str not in info.members:
        return value
    is_quoted = isinstance(value, str) and text[:1] in ("'", '"') and text[-1:] == text[:1]
    is_other = (text == "null" or text.startswith("[")) and type(value) in info.members
    return value if is_quoted or is_other else text
