"""Standard streams that are closed, full, not read to the end, or not UTF-8."""

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import orbit_runner
from orbit_runner.cli.main import main
from orbit_runner.reporting.document import Chart, Section, Series, Table
from orbit_runner.reporting.html import page
from orbit_runner.reporting.progress import live
from orbit_runner.reporting.progress.lines import make_progress
from orbit_runner.reporting.results import result_lines
from orbit_runner.reporting.svg import draw_charts
from orbit_runner.utils.streams import TolerantFile, print_result
from tests.reporting.test_reporting import _results
from tests.support.run_directories import write_run

RUNNER = f"{sys.executable} -m orbit_runner"
SMOKE = Path("configs/trainer/smoke.yaml").resolve()
RUN = f"{RUNNER} --experiment=digits --config_file={SMOKE} --progress=plain --model_dir=run"
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


def shell(command: str, folder: Path, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        timeout=600,
        check=False,
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (f"{RUNNER} list >&- 2>&- <&-", 0, b""),
        (f"{RUNNER} show --nope 2>&-", 2, b""),
        (f"{RUNNER} show --nope 2>/dev/full", 2, b""),
        (f"{RUNNER} --help >/dev/full", 6, b"written to standard output: No space left"),
    ],
)
@needs_full
def test_exit_code_is_correct_when_streams_are_closed_or_full(command, code, message, tmp_path):
    completed = shell(command, tmp_path)

    assert completed.returncode == code
    assert message in completed.stderr
    assert len(completed.stderr.splitlines()) == (2 if code == 6 else bool(message))


@needs_full
def test_result_that_cannot_be_written_is_reported_whatever_the_exit_code(tmp_path):
    for name, seed in (("a", "1"), ("b", "2")):
        write_run(tmp_path / name, flags=[("runtime.seed", seed)], weights={100: seed * 64})

    completed = shell(f"{RUNNER} why a b --recorded >/dev/full", tmp_path)

    assert completed.returncode == 4
    assert b"written to standard output: No space left" in completed.stderr


def test_text_is_written_in_the_encoding_of_the_stream(tmp_path):
    completed = shell(f"{RUNNER} list", tmp_path, PYTHONIOENCODING="ascii")

    assert completed.returncode == 0, completed.stderr
    assert r"32\xd732" in completed.stdout.decode("ascii")


@pytest.mark.slow
def test_yaml_is_utf8_in_every_locale(tmp_path):
    (tmp_path / "a").write_text("task: {init_checkpoint: dïgits}", encoding="utf-8")
    posix = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    completed = shell(f"{RUNNER} show --experiment=digits --config_file=a", tmp_path, **posix)

    assert completed.returncode == 0, completed.stderr
    output = yaml.safe_load(completed.stdout.decode("utf-8"))
    assert output["task"]["init_checkpoint"] == "dïgits"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code"), [(">/dev/full", 6), ("2>&1 | head -1", 0), ("2>&-", 0)]
)
@needs_full
def test_run_is_recorded_as_done_even_if_output_streams_fail(redirection, code, tmp_path):
    completed = shell(f"{RUN} {redirection}", tmp_path, PYTHONIOENCODING="ascii")

    assert completed.returncode == code, completed.stderr
    assert b"Traceback" not in completed.stderr
    (attempt,) = json.loads((tmp_path / "run/run.json").read_text())["attempts"]
    assert attempt["outcome"] == "done"
    if redirection == "2>&-":
        assert f"sha256 {attempt['weights']}" in completed.stdout.decode("ascii")


def test_slow_reader_gets_all_that_is_written(monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    written = b"".join(b"%d\n" % number for number in range(100_000))
    received = bytearray()
    # Reads only when the pipe is full.
    monkeypatch.setattr(select, "select", lambda *_: received.extend(os.read(reader, 2**20)))
    try:
        TolerantFile(writer).write(written)
        received += os.read(reader, 2**20)
    finally:
        os.close(reader)
        os.close(writer)

    assert received == written


# Colors, the title of the window, the start of the line, another direction, and an 8-bit command.
HOSTILE = "\x1b[31mred\x1b]0;<b>&'\"title\a\r\u202eover\x9b2J"
CONTROL = re.compile(r"[^ -~\n\t\u00a0-\u2027\u202f-\uffff]")


def _write_hostile_files() -> None:
    settings = [(name, json.dumps(HOSTILE)) for name in ("description", "task.init_checkpoint")]
    write_run(Path(f"runs/{HOSTILE}"), flags=settings, metrics={HOSTILE: 0.5}, outcome=HOSTILE)
    write_run(Path("runs/b"))
    Path("a.yaml").write_text(yaml.safe_dump({HOSTILE: 1}), encoding="utf-8")
    rows = [f"{n},{json.dumps(HOSTILE)}{n % 3},{n % 2}" for n in range(60)]
    table = "\n".join([f"a,{json.dumps(HOSTILE, ensure_ascii=False)},label", *rows])
    Path("rows.csv").write_text(table, encoding="utf-8", newline="")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "--check", "a.yaml"],
        ["show", f"--experiment=runs/{HOSTILE}", "--origins"],
        ["show", f"--experiment=runs/{HOSTILE}", "--json"],
        ["runs", "--columns=run,reason,description", "--csv"],
        ["compare", "runs"],
        ["init", "new", "--from=rows.csv", "--label=none"],
    ],
)
def test_names_that_others_chose_do_not_control_the_terminal(arguments, here, capfd):
    _write_hostile_files()
    main(arguments)
    printed = "".join(capfd.readouterr())
    assert "red" in printed
    assert not CONTROL.search(printed), printed


@pytest.mark.parametrize("kind", ["plain", "bar", "none"])
def test_progress_and_results_do_not_control_the_terminal(kind, capfd):
    progress = make_progress(kind, title=HOSTILE, place=HOSTILE)
    with progress.shown_scope():
        progress.phase(HOSTILE)
        progress.detail(HOSTILE)
        progress.note(f"warning: {HOSTILE}")
    lines = live.lines(live.View(progress, HOSTILE, HOSTILE, HOSTILE, detail=HOSTILE), 200, 0.0)
    results = _results(experiment=HOSTILE, metrics={HOSTILE: 0.5}, model_dir=HOSTILE)
    print_result("\n".join(result_lines(results)))
    printed = "".join([*capfd.readouterr(), *(line.plain for line in lines)])
    assert printed.count("red") >= 5
    assert not CONTROL.search(printed), printed


def test_pages_and_pictures_show_control_characters_and_markup_as_text():
    chart = Chart(HOSTILE, [Series(HOSTILE, {1: 1.0}), Series("b", {1: 2.0})], x_label=HOSTILE)
    sections = [Section(HOSTILE, [Table([[HOSTILE, HOSTILE]], [HOSTILE, HOSTILE]), chart])]
    for text in (page(HOSTILE, sections), draw_charts([chart])):
        assert text.count("&lt;b&gt;&amp;&#x27;&quot;title") >= 2
        assert not CONTROL.search(text)
        assert "<b>&" not in text


def test_all_that_is_printed_passes_the_functions_that_show_control_characters():
    source = Path(orbit_runner.__file__).parent
    call = re.compile(r"(?:(?<![\w.])print|std(?:out|err)\.write)\(.*")
    printing = {
        file.relative_to(source).as_posix(): lines
        for file in source.rglob("*.py")
        if "templates" not in file.parts and (lines := call.findall(file.read_text("utf-8")))
    }
    # The second one prints lines for another process.
    assert {*printing} == {"utils/streams.py", "repeat/why_process.py"}
