"""`runner compare --paired`: text, JSON, CSV, the page, and runs that cannot be paired."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from tests.support.problems import check_error, error_of, fails, output_of
from tests.support.run_directories import write_best, write_run

_A, _B = (0.90, 0.91, 0.92, 0.93, 0.94), (0.911, 0.924, 0.931, 0.941, 0.953)
_RESULT = "+0.012 [+0.0102, +0.0138], p < 0.001: more than chance at 5 %"
_SENTENCE = f"5 seeds: {_RESULT}"


def _write(root: Path, values: Sequence[float | None], rate: str = "0.01", first: int = 17) -> Path:
    for index, value in enumerate(values):
        seed = str(first + index)
        write_run(
            root / f"seed-{seed}",
            accuracies={100: 0.5, 300: value},
            flags=[("runtime.seed", seed), ("task.model.dropout_rate", rate)],
            weights={300: f"{rate}{seed}"},
            seed=first + index,
        )
    return root


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two trials of five seeds."""
    folder = tmp_path_factory.mktemp("written")
    _write(folder / "0001", _A, "0.1")
    _write(folder / "0002", _B, "0.2")
    return folder


@pytest.fixture
def trials(written, here, monkeypatch):
    """A copy of the trials in `trials`."""
    monkeypatch.setenv("COLUMNS", "100")
    return Path(shutil.copytree(written, here / "trials"))


@pytest.mark.usefixtures("no_tensorflow")
def test_text_says_whether_a_difference_is_chance(trials):
    arguments = ["trials/0001", "trials/0002", "--metric=accuracy"]
    text = output_of(["compare", "--paired", *arguments])
    assert text.splitlines()[:3] == [
        "A  0001", "B  0002", "   5 seeds: 17, 18, 19, 20, 21",
    ]  # fmt: skip
    assert "  task.model.dropout_rate  0.1  0.2\n" in text
    assert "  A      0.920 ± 0.016 [0.9, 0.94]\n" in text
    assert "  accuracy  B       +0.012 [+0.0102, +0.0138]  < 0.001\n" in text
    assert f"  B - A  {_RESULT}\n" in text
    assert text.index("differences") < text.index("settings") < text.index("B - A  ")
    assert "training_loss" not in text
    assert "Student 1908" in text


def test_metrics_of_all_runs_are_compared(trials):
    for run in trials.glob("*/seed-*"):
        write_best(run, 300, accuracy=0.99)
    (trials / "0001/seed-17/best/info.json").unlink()
    text = output_of(["compare", "--paired", "trials/0001", "trials/0002", "--json"])
    (test,) = json.loads(text)["paired"]
    assert list(test["metrics"]) == ["accuracy", "training_loss"]  # best.accuracy lacks a run.
    accuracy = test["metrics"]["accuracy"]
    assert (accuracy["a"]["values"], accuracy["b"]["values"]) == ([*_A], [*_B])
    assert accuracy["verdict"] == _SENTENCE
    assert accuracy["more_than_chance"] is True
    loss = test["metrics"]["training_loss"]
    assert (loss["p"], loss["effect_size"], loss["more_than_chance"]) == (1.0, None, False)
    assert test["seeds"] == [17, 18, 19, 20, 21]
    assert test["settings"] == {"task.model.dropout_rate": [0.1, 0.2]}


def test_best_evaluation_can_be_selected(trials):
    for index, run in enumerate(sorted(trials.glob("*/seed-*"))):
        write_best(run, 300, accuracy=0.9 + index / 100)
    arguments = ["trials/0001", "trials/0002", "--metric=best.accuracy", "--json"]
    (test,) = json.loads(output_of(["compare", "--paired", *arguments]))["paired"]
    assert (test["a"], test["b"], len(test["seeds"])) == (
        "0001", "0002", 5,
    )  # fmt: skip
    (metric,) = test["metrics"].values()
    low, high = metric["difference"]["interval"]
    assert metric["difference"]["mean"] == pytest.approx(0.05)
    assert low <= 0.05 <= high
    assert metric["more_than_chance"] is True


def test_only_common_seeds_are_compared(trials):
    _write(trials / "0003", [0.8, 0.81, 0.82], "0.3", first=20)
    text = output_of(["compare", "--paired", "trials/0001", "trials/0003"])
    assert "   2 seeds: 20, 21\n" in text
    assert "note: not compared: seeds 17, 18, 19, which only 0001 has\n" in text
    assert "note: not compared: seed 22, which only 0003 has\n" in text


def test_several_directories_are_compared_with_the_first(trials):
    _write(trials / "0003", _A, "0.3")
    text = output_of(["compare", "--paired", "trials/0001", "trials/0002", "trials/0003"])
    assert [line for line in text.splitlines() if line.startswith(("A  ", "B  "))] == [
        f"{letter}  000{number}" for letter, number in (("A", 1), ("B", 2), ("A", 1), ("B", 3))
    ]
    assert "  accuracy       equal   0                      -\n" in text
    assert "  B - A  no difference for any seed\n" in text


def test_notes_name_what_limits_the_comparison(trials):
    _write(trials / "0003", _A, "0.1")
    for run in trials.glob("*/seed-*"):
        write_best(run, 300, accuracy=0.99)
    text = output_of(["compare", "--paired", "trials/0001", "trials/0003"])
    assert "note: no setting differs except the seed\n" in text
    assert "note: the weights of each seed are equal\n" in text
    assert "note: 3 metrics were compared" in text


def test_runs_whose_config_cannot_be_read_are_not_compared(trials):
    for run in trials.glob("*/seed-*"):
        (run / "config.yaml").write_text("task: [")
    error = error_of(["compare", "--paired", "trials/0001", "trials/0002"])
    check_error(error, "not-comparable", "--paired")
    assert "  config.yaml: cannot be read\n" in str(error)


def test_page_has_a_line_for_each_seed_and_loads_nothing(trials, capsys):
    (trials / "0002").rename(trials / "<script>")
    assert main(["compare", "--paired", "trials/0001", "trials/<script>", "--html=p.html"]) == 0
    assert capsys.readouterr() == ("", "")
    page = Path("p.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page
    assert page.count('<path class="quiet"') == 2 * 5  # accuracy and training_loss
    assert html.escape(_RESULT) in page
    assert "<b class=good>B</b>" in page


def _duplicate(trials: Path) -> None:
    write_run(trials / "0002/again", accuracies={300: 0.9}, flags=[("runtime.seed", "17")])


def _other_settings(trials: Path) -> None:
    flags = [("runtime.seed", "30"), ("task.model.dropout_rate", "0.7")]
    write_run(trials / "0002/other", accuracies={300: 0.9}, flags=flags)


def _missing_value(trials: Path) -> None:
    _write(trials / "0003", [None, *_A[1:]], "0.2")


def _other_seeds(trials: Path) -> None:
    _write(trials / "0003", _A, "0.2", first=50)


@pytest.mark.parametrize(
    ("change", "arguments", "code", "path"),
    [
        (None, ["trials/0001"], "out-of-range", "--paired"),
        (None, ["trials/0001", "trials/0001"], "out-of-range", "--paired"),
        (None, ["trials/0001/seed-17", "trials/0002"], "not-comparable", "--paired"),
        (_other_seeds, ["trials/0001", "trials/0003"], "not-comparable", "--paired"),
        (_duplicate, ["trials/0001", "trials/0002"], "set-twice", "--paired"),
        (_other_settings, ["trials/0001", "trials/0002"], "not-comparable", "--paired"),
        (
            None,
            ["trials/0001", "trials/0002", "--metric=acuracy"],
            "unknown-name",
            "--metric",
        ),
        (
            _missing_value,
            ["trials/0001", "trials/0003", "--metric=accuracy"],
            "unknown-name",
            "--metric",
        ),
        (None, ["trials/0001", "nowhere"], "not-a-run", "RUN"),
    ],
)
def test_runs_that_cannot_be_paired_are_errors(trials, change, arguments, code, path):
    if change is not None:
        change(trials)
    error = fails(["compare", "--paired", *arguments], code, path)
    assert len(str(error).splitlines()) <= 10


def test_settings_that_cannot_change_the_weights_may_differ(trials):
    flags = [("runtime.seed", "22"), ("trainer.report_interval", "7")]
    flags.append(("task.model.dropout_rate", "0.1"))
    write_run(trials / "0001/seed-22", accuracies={300: 0.9}, flags=flags)
    assert "5 seeds" in output_of(["compare", "--paired", "trials/0001", "trials/0002"])
