"""`runner compare`: text, JSON, CSV and the HTML page."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from tests.support.run_directories import write_best, write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs in `runs`: b repeats a, and c has another seed and network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    root = tmp_path / "runs"
    same = {"accuracies": {100: 0.7, 200: 0.8, 300: 0.9}, "weights": {100: "aa", 300: "bb"}}
    write_run(root / "a", **same)
    write_run(root / "b", **same)
    write_run(
        root / "c",
        accuracies={100: 0.6, 200: 0.85, 300: 0.95},
        losses=[3.0, None, 0.1],
        flags=[("runtime.seed", "3"), ("task.model.filters", "[8, 16]")],
        weights={100: "aa", 300: "cc"},
        software={"tensorflow": "2.21.0"},
    )
    _set_weights(root / "c", "cd" * 32)
    write_best(root / "c", 300, accuracy=0.95)
    return root


def _set_weights(path: Path, weights: str) -> None:
    record = json.loads((path / "run.json").read_text())
    record["attempts"][-1]["weights"] = weights
    (path / "run.json").write_text(json.dumps(record))


def _rows(text: str) -> dict[str, list[str]]:
    """Returns the rows of the table by their first cell; cells are two spaces apart."""
    cells = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) > 1}


def test_table_has_settings_software_metrics_and_weights(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "runs/a", "runs/b", "runs/c"]) == 0
    text = capsys.readouterr().out
    rows = _rows(text)
    assert text.splitlines()[0].split() == ["[a]", "a", "[b]", "b", "[c]", "c"]
    assert rows["runtime.seed"] == ["17", "17", "3"]
    assert rows["task.model.filters"] == ["[32, 64]", "[32, 64]", "[8, 16]"]
    assert rows["tensorflow"] == ["2.20.0", "2.20.0", "2.21.0"]
    assert rows["wall time"] == ["1:30"] * 3
    assert rows["steps/s, median"] == ["25", "25", "25"]
    assert rows["weights"] == ["abababababab", "abababababab", "cdcdcdcdcdcd"]
    assert rows["equal to a"] == ["differ from a at step 300, equal at step 100"]
    assert "task.model.name" not in rows
    after = text.index("best evaluation")
    assert _rows(text[:after])["accuracy"] == ["0.9", "0.9", "0.95"]
    assert _rows(text[after:])["accuracy"] == ["-", "-", "0.95"]


def test_runs_of_a_directory_are_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "runs", "runs/a", "--where=accuracy < 0.93"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["[a]", "a", "[b]", "b"]


def test_curves_are_drawn_with_a_letter_for_each_run(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "runs/a", "runs/c", "--metric=accuracy"]) == 0
    text = capsys.readouterr().out
    plot = text[text.index("\naccuracy\n") :].splitlines()[2:]
    assert plot[0].split("│") == ["      0.95 ", " " * 63 + "b"]
    assert plot[9].split("│") == ["       0.6 ", "b"]
    assert plot[1].endswith(" " * 62 + "a")
    assert plot[11].split() == ["100", "step", "300"]


def test_narrow_terminal_shows_the_runs_one_below_the_other(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["compare", "runs"]) == 0
    text = capsys.readouterr().out
    assert [line.split() for line in text.splitlines() if line.lstrip().startswith("[")] == [
        ["[a]", "a", "[b]", "b"], ["[c]", "c"],
    ]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 50


def test_json_has_everything(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == ["runs/a", "runs/b", "runs/c"]
    assert [one["compared"] for one in found["runs"]] == [
        "", "equal to a", "differ from a at step 300, equal at step 100",
    ]  # fmt: skip
    assert found["settings"] == {
        "runtime.seed": [17, 17, 3],
        "task.model.filters": [[32, 64], [32, 64], [8, 16]],
    }
    assert found["software"] == {"tensorflow": ["2.20.0", "2.20.0", "2.21.0"]}
    assert found["curves"]["train/training_loss"]["c"] == [[100, 3.0], [200, None], [300, 0.1]]
    assert found["runs"][2]["best"] == {"accuracy": 0.95}


def test_csv_has_a_row_for_each_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "runs", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == ["runs/a", "runs/b", "runs/c"]
    assert [row["runtime.seed"] for row in rows] == ["17", "17", "3"]
    assert rows[2]["task.model.filters"] == "[8, 16]"
    assert [row["best.accuracy"] for row in rows] == ["", "", "0.95"]


class _Checker(HTMLParser):
    """Counts elements, and collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.count: dict[str, int] = {}
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_is_self_contained_and_has_a_chart_for_each_metric(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "runs", "--html=pages/compare.html"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "the comparison is in pages/compare.html\n")
    checker = _Checker()
    checker.feed(Path("pages/compare.html").read_text(encoding="utf-8"))
    assert checker.loads == []
    assert checker.count.get("script", 0) == 0
    assert checker.count["figure"] == 3  # accuracy, training loss, speed
    assert checker.count["table"] == 1
    text = " ".join(checker.text)
    assert "c, step 200: not a finite number" in text
    assert "prefers-color-scheme:dark" in text


def test_names_of_runs_and_settings_are_escaped_in_the_page(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "a").rename(runs / "<b>&'\"a")
    assert main(["compare", "runs", "--html=page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;&#x27;&quot;a" in page


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing"], "RUN: missing does not exist"),
        (["runs/a/config.yaml"], "RUN: runs/a/config.yaml is not a directory"),
        (["runs/a/checkpoints"], "is not a run directory and contains none"),
        (["runs", "--metric=acuracy"], "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        (["runs", "--where=accuracy > 2"], "no run matches 'accuracy > 2'"),
        (["runs", "--html=runs/a/config.yaml/page.html"], "--html: cannot write"),
    ],
)
def test_invalid_arguments_are_errors(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main(["compare", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_too_many_runs_are_an_error(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbit_runner.cli.commands.compare._MOST_RUNS", 2)
    assert main(["compare", "runs"]) == 2
    assert "got 3 runs, allowed: at most 2" in capsys.readouterr().err


def test_run_that_is_being_written_is_compared(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run.json", "config.yaml"):
        text = (runs / "b" / name).read_text()
        (runs / "b" / name).write_text(text[: len(text) // 2])
    with (runs / "b/metrics.jsonl").open("a") as file:
        file.write('{"step": 400, "spl')
    assert main(["compare", "runs/a", "runs/b"]) == 0
    assert _rows(capsys.readouterr().out)["status"] == ["finished", "lost"]
