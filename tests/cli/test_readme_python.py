"""The README's Python, run as it stands on a run of the tests."""

import re

from tests.readme import README


def test_the_readmes_python_shows_the_attention_of_a_run(trained):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(code.replace("runs/quickstart", str(trained.run("byte"))).replace("The function returns", "The f"), names)
    config = names["run"].config
    assert names["maps"].shape == (config.n_layers, 1, config.n_heads, 5, 5)
