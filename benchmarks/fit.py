"""Compares `orbit_runner.run` with `fit` of Keras 3: the same model, data and optimizer.

The contenders take turns in one process. Each trains a model of Keras 3 on the digits in batches of
64. `run` is measured between the ends of its first and last loop, so without building the run, and
`fit` in a second call, so without tracing its step. The last table has the seconds from the call to
the end of two epochs, each in a new process: with building and tracing, without imports.

Set the environment variable `CASES` to measure some networks: `CASES=mlp,lstm`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import SHORT, Figure, amount, chosen, table, turns

_BATCH, _EPOCH, _LOOP = 64, 24, amount(1000)
_ROWS = _BATCH * _EPOCH
# Steps of a measurement: without ends of epochs, and in epochs.
_STEPS = {"mlp": amount(4000), "cnn": amount(1000), "lstm": amount(2000)}
_EPOCHS = {"mlp": amount(100), "cnn": amount(30), "lstm": amount(50)}
_PLAIN = "Keras 3 `fit`"
Speed = Callable[[], float]


def build(network: str) -> Any:
    """Returns a compiled model of Keras 3."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    hidden: Mapping[str, Callable[[], Sequence[Any]]] = {
        "mlp": lambda: [layers.Flatten(), *(layers.Dense(n, "relu") for n in (128, 64))],
        "cnn": lambda: [
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
        ],
        "lstm": lambda: [layers.Reshape([8, 8]), layers.LSTM(32)],
    }
    model = keras.Sequential(
        [keras.Input([8, 8, 1]), *hidden[network](), layers.Dense(10, activation="softmax")]
    )
    compile_model(model)
    return model


def compile_model(model: Any, **options: Any) -> None:
    """Compiles a model for its training, with further options of `compile`."""
    import keras

    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"], **options)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns all digits: pixels from 0 to 1, float32 [n, 8, 8, 1], and their classes."""
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    return (x / 16).astype(np.float32).reshape(-1, 8, 8, 1), y.astype(np.int64)


def _parts() -> tuple[Any, Any]:
    x, y = digits()
    return (x[:_ROWS], y[:_ROWS]), (x[_ROWS:], y[_ROWS:])


def _run(network: str, *, validates: bool, settings: Mapping[str, Any], **options: Any) -> float:
    """Returns the steps per second of a run between the ends of its first and last loop."""
    import orbit_runner

    ends: list[tuple[int, float]] = []

    class Clock(orbit_runner.Callback):
        """Notes when loops end."""

        def on_loop_end(self, run: Any, logs: object) -> None:
            ends.append((run.step, time.perf_counter()))

    train, held_out = _parts()
    with tempfile.TemporaryDirectory() as folder:
        orbit_runner.run(
            build(network),
            train,
            validation=held_out if validates else None,
            batch_size=_BATCH,
            model_dir=folder,
            callbacks=[Clock()],
            progress="none",
            overrides={"trainer.checkpoint_interval": 10**8, **settings},
            **options,
        )
    (first, start), *_, (last, end) = ends
    return (last - first) / (end - start)


def _run_steps(network: str, **settings: Any) -> Speed:
    """Returns a function that measures a run without ends of epochs."""
    epochs = (_LOOP + _STEPS[network]) / _EPOCH
    loops = {"trainer.summary_interval": _LOOP}
    return lambda: _run(network, validates=False, settings={**loops, **settings}, epochs=epochs)


def _run_epochs(network: str, validates: bool, **settings: Any) -> Speed:
    """Returns a function that measures a run that writes its loss after each epoch."""
    loops = {"trainer.summary_interval": _EPOCH}
    epochs = 1 + _EPOCHS[network]
    return lambda: _run(network, validates=validates, settings={**loops, **settings}, epochs=epochs)


def _fit(network: str, data: Any, epochs: int, held_out: Any = None, **options: Any) -> Speed:
    """Returns a function that measures a call of `fit`, after another one."""
    model = build(network)
    compile_model(model, **options)
    x, y = data
    arguments = {"batch_size": _BATCH, "validation_data": held_out, "verbose": 0}

    def speed() -> float:
        start = time.perf_counter()
        model.fit(x, y, epochs=epochs, **arguments)
        return epochs * len(x) / _BATCH / (time.perf_counter() - start)

    return speed


def _fits(network: str, per_execution: int, *arguments: Any) -> Iterator[tuple[str, Speed]]:
    """Yields the forms of `fit`."""
    for is_compiled in (False, True):
        for steps in (1, per_execution):
            options = {"jit_compile": is_compiled, "steps_per_execution": steps}
            name = _PLAIN + (f", {steps:,} steps at once" if steps > 1 else "")
            label = f"{name}, `jit_compile`" if is_compiled else name
            yield label, _fit(network, *arguments, **options)


def _alternate(contenders: Mapping[str, Callable[[], float]], rounds: int) -> list[Figure]:
    """Measures the contenders in turn. The first round does not count."""
    names = [*contenders]
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in turns(rounds):
        start = turn % len(names)
        for name in [*names[start:], *names[:start]]:
            speed = contenders[name]()
            if turn:
                speeds[name].append(speed)
    figures = []
    for name, own in speeds.items():
        ratios = [a / b for a, b in zip(own, speeds[_PLAIN], strict=True)]
        medians = statistics.median(own), statistics.median(ratios)
        figures.append(Figure(name, *medians, min(ratios), max(ratios)))
    return figures


def measure_steps(network: str, rounds: int) -> list[Figure]:
    """Measures steps without ends of epochs."""
    x, y = _parts()[0]
    rows = np.arange(_STEPS[network] * _BATCH) % len(x)
    contenders = {
        "this runner": _run_steps(network),
        "this runner, XLA": _run_steps(network, **{"runtime.enable_xla": True}),
        **dict(_fits(network, _LOOP, (x[rows], y[rows]), 1)),
    }
    return _alternate(contenders, rounds)


def measure_epochs(network: str, rounds: int, *, validates: bool) -> list[Figure]:
    """Measures steps in epochs of 24 steps."""
    train, held_out = _parts()
    data = train, _EPOCHS[network], held_out if validates else None
    contenders = {
        "this runner": _run_epochs(network, validates),
        "this runner, XLA": _run_epochs(network, validates, **{"runtime.enable_xla": True}),
        **dict(_fits(network, _EPOCH, *data)),
    }
    return _alternate(contenders, rounds)


def _two_epochs(contender: str, network: str) -> float:
    """Returns the seconds from the call to the end of two epochs with evaluations."""
    import orbit_runner

    model = build(network)
    (x, y), held_out = _parts()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        if contender == "run":
            orbit_runner.run(
                model, (x, y), validation_data=held_out, batch_size=_BATCH, epochs=2,
                model_dir=folder, progress="none",
            )  # fmt: skip
        else:
            model.fit(x, y, validation_data=held_out, batch_size=_BATCH, epochs=2, verbose=0)
        return time.perf_counter() - start


def _in_new_process(contender: str, network: str) -> Callable[[], float]:
    """Returns a function that measures starts per second."""
    command = [sys.executable, "-m", "benchmarks.fit", "--start", contender, network]

    def starts() -> float:
        completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return 1 / json.loads(completed.stdout.splitlines()[-1])

    return starts


def measure_start(network: str, rounds: int) -> str:
    """Returns a row of the table of two epochs in a new process."""
    contenders = {_PLAIN: _in_new_process("fit", network), "run": _in_new_process("run", network)}
    fit, run = _alternate(contenders, rounds)
    return (
        f"| {network} | {1 / fit.per_second:.1f} | {1 / run.per_second:.1f} "
        f"| {1 / run.ratio:.2f} | {1 / run.high:.2f} to {1 / run.low:.2f} |"
    )


def report(rounds: int = 5) -> str:
    """Measures each network, and returns the tables."""
    networks = chosen(_STEPS, short="mlp")
    parts = []
    for name in networks:
        figures = measure_steps(name, rounds)
        parts.append(table(f"`run` and `fit`, {name}, {_STEPS[name]:,} steps", "steps/s", figures))
        for validates in (True,) if SHORT else (False, True):
            figures = measure_epochs(name, rounds, validates=validates)
            title = f"`run` and `fit`, {name}, epochs of {_EPOCH} steps"
            title += ", each with an evaluation" if validates else ""
            parts.append(table(title, "steps/s", figures))
    lines = [
        "### two epochs with evaluations in a new process, from the call to its end",
        "",
        f"| | {_PLAIN}, s (median) | `run`, s | ratio (median) | lowest to highest |",
        "|---|---|---|---|---|",
        *(measure_start(name, rounds) for name in networks),
    ]
    return "\n".join([*parts, *lines, ""])


def _main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--start", nargs=2, metavar=("CONTENDER", "NETWORK"))
    flags = parser.parse_args()
    print(json.dumps(_two_epochs(*flags.start)) if flags.start else report(flags.rounds))


if __name__ == "__main__":
    _main()
