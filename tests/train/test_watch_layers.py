"""Layers of variables, by the names of the variables."""

import pytest

from orbit_runner.train.watch import MAX_LAYERS, layers_by_variable


def test_layer_is_the_name_without_its_last_part() -> None:
    assert layers_by_variable(["a/kernel:0", "a/bias:0", "b/c/kernel:0", "step:0"]) == {
        "a/kernel:0": "a",
        "a/bias:0": "a",
        "b/c/kernel:0": "b/c",
        "step:0": "step",
    }


def test_layers_with_a_common_prefix_count_as_one_if_there_are_many() -> None:
    names = [
        f"net/block_{n}/{part}/kernel:0" for n in range(12) for part in ("key", "value", "out")
    ]
    found = layers_by_variable(names)
    assert list(dict.fromkeys(found.values())) == [f"net/block_{n}" for n in range(12)]


@pytest.mark.parametrize("prefix", ["", "net/"])
@pytest.mark.parametrize("count", [MAX_LAYERS + 1, 2 * MAX_LAYERS, 200])
def test_consecutive_layers_count_as_one_if_no_prefix_is_shared(prefix: str, count: int) -> None:
    names = [f"{prefix}conv_{n}/{part}:0" for n in range(count) for part in ("kernel", "bias")]
    found = layers_by_variable(names)
    layers = list(dict.fromkeys(found.values()))
    assert MAX_LAYERS / 2 <= len(layers) <= MAX_LAYERS
    first, _, last = layers[0].partition("..")
    assert first == f"{prefix}conv_0"
    assert found[f"{last}/bias:0"] == layers[0]
    assert list(found) == names
    assert [found[name] for name in names] == sorted(found.values(), key=layers.index)
