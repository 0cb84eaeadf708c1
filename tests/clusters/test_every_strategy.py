"""Every strategy finishes in every mode of the command line, and counts the same examples."""

import json
import subprocess
import sys

import pytest

from tests.clusters.members import alone, records

_DIGITS = (
    "--experiment=digits", "--task.model.dropout_rate=0", "--train_steps=20",
    "--trainer.summary_interval=1", "--trainer.checkpoint_interval=10",
    "--trainer.validation_interval=20",
)  # fmt: skip
# A small learning rate: with the default, rounding errors grow tenfold every two steps.
_RESNET = (
    "--experiment=resnet_cifar", "--task.model.depth=8", "--task.model.use_sync_bn=true",
    "--task.train_data.source=synthetic", "--task.validation_data.source=synthetic",
    "--task.train_data.synthetic.num_examples=96",
    "--task.validation_data.synthetic.num_examples=75",
    "--task.train_data.global_batch_size=32", "--task.validation_data.global_batch_size=16",
    "--train_steps=20", "--trainer.summary_interval=1", "--trainer.checkpoint_interval=10",
    "--trainer.validation_interval=20",
    "--trainer.optimizer_config.learning_rate.type=constant",
    "--trainer.optimizer_config.learning_rate.constant.learning_rate=0.001",
    "--trainer.optimizer_config.warmup.type=null",
)  # fmt: skip
_EXPERIMENTS = {"digits": (_DIGITS, 359), "resnet_cifar": (_RESNET, 75)}
_STRATEGIES = {
    "off": ([], ["--distribution_strategy=off"]),
    "one_device": ([], ["--distribution_strategy=one_device"]),
    "mirrored": ([], ["--distribution_strategy=mirrored", "--runtime.num_virtual_devices=2"]),
    "multi_worker_mirrored": (
        ["launch", "--workers=2", "--"], ["--distribution_strategy=multi_worker_mirrored"],
    ),
    "parameter_server": (
        ["launch", "--workers=2", "--ps=1", "--"], ["--distribution_strategy=parameter_server"],
    ),
}  # fmt: skip
_SPEED = "steps_per_second"
_CLUSTERED = ("multi_worker_mirrored", "parameter_server")


def _run(strategy, folder, *flags, own=()):
    """Runs to the end, and returns the results from the JSON output."""
    first, last = _STRATEGIES[strategy]
    launch, chosen = (["launch", *own, *first[1:]], last) if first else ([], last)
    command = [
        sys.executable, "-m", "orbit_runner", *launch, *flags, *chosen,
        f"--model_dir={folder / 'run'}", "--json",
    ]  # fmt: skip
    completed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert completed.returncode == 0, completed.stderr[-4000:]
    return dict(json.loads(completed.stdout))


_PAIRS = [
    pytest.param("digits", "parameter_server", ("train_and_eval", "continuous_eval")),
    *(
        pytest.param(experiment, strategy, modes, marks=pytest.mark.matrix)
        for experiment in _EXPERIMENTS
        for strategy in _STRATEGIES
        for modes in (
            ("train", "eval", "continuous_eval"),
            ("train_and_eval",),
            ("train_and_post_eval",),
        )
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "strategy", "modes"), _PAIRS)
def test_every_mode_finishes_and_counts_each_example(experiment, strategy, modes, tmp_path):
    """The first mode trains; the others evaluate its checkpoint."""
    flags, examples = _EXPERIMENTS[experiment]
    results = {mode: _run(strategy, tmp_path, *flags, f"--mode={mode}") for mode in modes}

    for mode, result in results.items():
        assert result["step"] == 20, mode
        if mode != "train":
            assert result["metrics"]["validation_examples"] == examples, mode
    assert len({result["fingerprint"] for result in results.values()}) == 1
    evaluations = [
        {name: value for name, value in results[mode]["metrics"].items() if name != _SPEED}
        for mode in modes[1:]
    ]
    assert evaluations == evaluations[:1] * len(evaluations)


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", _CLUSTERED)
@pytest.mark.parametrize("experiment", _EXPERIMENTS)
def test_separate_evaluator_evaluates_the_last_step(experiment, strategy, tmp_path):
    flags, examples = _EXPERIMENTS[experiment]
    _run(strategy, tmp_path, *flags, own=("--evaluator",))

    last = records(tmp_path, "validation")[-1]
    assert (last["step"], last["validation_examples"]) == (20, examples)


@pytest.mark.matrix
@pytest.mark.parametrize("experiment", _EXPERIMENTS)
@pytest.mark.parametrize("strategy", ["off", "mirrored", "multi_worker_mirrored"])
def test_losses_of_synchronous_strategies_match_those_of_one_device(experiment, strategy, tmp_path):
    flags, _ = _EXPERIMENTS[experiment]
    alone(tmp_path / "one", *flags, *_STRATEGIES["one_device"][1])
    _run(strategy, tmp_path / "other", *flags)

    ours, theirs = (
        [record["training_loss"] for record in records(tmp_path / name, "train")]
        for name in ("other", "one")
    )
    assert len(ours) == 20
    assert ours == pytest.approx(theirs, rel=0, abs=1e-5)
