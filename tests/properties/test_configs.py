"""Properties of the resolver: any text gives a config or a `ConfigError`, both ways of writing one
give the same config.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.yaml_files import parse_scalar, parse_value
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import flat_settings, inline_yaml, to_yaml
from tests.properties.profile import CHANGES, changed, examples


@functools.cache
def _settings() -> dict[str, Any]:
    return flat_settings(resolve(Request(experiment="digits")).config)


@functools.cache
def _words() -> list[str]:
    """Returns the paths of settings, their last names, and lines that set them."""
    words = []
    for path, value in _settings().items():
        words += [path, path.rpartition(".")[2], f"{path}={inline_yaml(value)}"]
        words.append(f"{path} = {value!r}\n")
    return [*dict.fromkeys(words)]


_NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**400, -(10**4000), 2**63, 1e308, float("nan")])
)
_SCALARS = st.one_of(
    st.none(), st.booleans(), _NUMBERS, st.text(max_size=20),
    st.sampled_from(["${x}", "adam", "1h", "~", "../x", "0x10"]),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.text(max_size=8), below, max_size=3)
    ),
    max_leaves=6,
)
_SET = st.lists(
    st.tuples(st.deferred(lambda: st.sampled_from(sorted(_settings()))), _VALUES),
    min_size=1,
    max_size=2,
)


@pytest.mark.slow
@examples(15)
@given(changes=_SET)
def test_any_values_give_a_config_or_a_config_error(changes):
    overrides = tuple(f"{path}={inline_yaml(value)}" for path, value in changes)
    with contextlib.suppress(ConfigError):
        resolve(Request(experiment="digits", params_overrides=overrides))


@pytest.mark.slow
@examples(10)
@given(changes=_SET)
def test_accepted_config_round_trips_through_yaml(changes, tmp_path_factory):
    try:
        flags = tuple((f"--{path}", path, inline_yaml(value)) for path, value in changes)
        config = resolve(Request(experiment="digits", flags=flags)).config
    except (ConfigError, ValueError):
        assume(False)
    folder = tmp_path_factory.mktemp("written")
    (folder / "a.yaml").write_text(to_yaml(config), encoding="utf-8")
    reloaded = resolve(Request(experiment=str(folder / "a.yaml"))).config
    assert repr(reloaded.replace(name=config.name)) == repr(config)


@examples(100)
@given(value=_SCALARS)
def test_written_scalar_reads_back_as_the_same_value(value):
    try:
        text = inline_yaml(value)
    except ValueError:
        return
    assume(text.isprintable())
    parsed = parse_value(text, "a")
    assert repr(parsed) == repr(value) or len(str(value)) > 1000


@examples(100)
@given(text=st.text(alphabet="0123456789_+-.eExobnaif~ \n", max_size=30))
def test_any_unquoted_scalar_has_a_value(text):
    assert isinstance(parse_scalar(text), (str, int, float, bool, type(None)))


@examples(20)
@given(
    parts=st.lists(
        st.one_of(
            st.deferred(lambda: st.sampled_from(_words())),
            st.sampled_from(
                [" = ", "%A", "@f()", "[", "]", "{", "}", "'", '"""', "\n", "import x\n"]
            ),
            st.text(max_size=5),
        ),
        max_size=8,
    )
)
def test_any_gin_text_gives_a_config_or_a_config_error(parts):
    with contextlib.suppress(ConfigError):
        resolve(Request(experiment="digits", gin_params=("".join(parts),)))


_YAML = (
    b"trainer: &t {train_steps: 20, checkpoint_interval: 5}\nruntime: {seed: 0x11}\n",
    b"task:\n  model:\n    filters: [1, 2, 3]\n    dropout_rate: 1e-1\n",
    b"base: digits_mlp\ntrainer:\n  train_steps: 5\n  summary_interval: 5\n",
    b"callbacks:\n- class_name: a.b:C\n  arguments: {x: [1, {y: 2}]}\n",
)


@examples(25)
@given(seed=st.sampled_from(_YAML), changes=CHANGES)
def test_any_yaml_file_gives_a_config_or_a_config_error(seed, changes, tmp_path_factory):
    path = tmp_path_factory.mktemp("changed") / "over.yaml"
    path.write_bytes(changed(seed, changes))
    with contextlib.suppress(ConfigError):
        resolve(Request(experiment="digits", config_files=(str(path),)))
