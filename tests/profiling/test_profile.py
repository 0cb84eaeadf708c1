"""The profile of traces that are written by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.profiling.profile import Profile, read_profile
from orbit_runner.profiling.trace_files import TraceDescription, newest_trace, read_description
from orbit_runner.reporting.profile import kind_table, part_table, profile_sections, verdict
from orbit_runner.reporting.terminal import section_lines
from tests.support.problems import raises
from tests.support.xspaces import Plane, add_program, fetch, new_xspace, steps, write_trace

KNOWN = TraceDescription("small", "net", ("dense", "out"), ("SGD",), cores=2, cpu_seconds=0.012)


def _profile(xspace: Any, directory: Path, description: TraceDescription | None = KNOWN) -> Profile:
    write_trace(xspace, directory, description)
    return read_profile(directory)


def _kinds(profile: Profile) -> dict[str, tuple[float, float]]:
    """Returns the milliseconds and the calls of each type."""
    return {row.kind: (round(row.seconds * 1e3, 6), row.calls) for row in profile.kinds}


def _parts(profile: Profile) -> dict[str, tuple[float, float]]:
    """Returns the milliseconds forward and backward of each part."""
    return {
        row.part: (round(row.forward * 1e3, 6), round(row.backward * 1e3, 6))
        for row in profile.parts
    }


def _on_processors(*more: Any) -> Any:
    """Returns a trace of two steps of 5 ms each, from 10 ms to 20 ms, in two threads."""
    xspace = new_xspace()
    plane = Plane(xspace, "/host:CPU")
    plane.line("python", steps(2, 10, 20), ("loop", 11, 19))
    plane.line(
        "tf_Compute/1",
        ("net/dense/MatMul:MatMul", 9, 9.5),  # before the steps
        ("ExecutorState::Process", 10, 20),
        ("net/dense/MatMul:MatMul", 11, 13),
        ("net/dense/call:PartitionedCall", 13, 15),
        ("net/dense/Relu:_MklRelu", 13.5, 14),
        ("gradient_tape/net/dense/MatMul/MatMul_1:_MklMatMul", 15, 16),
        *more,
    )
    plane.line("tf_Compute/2", ("SGD/update:ResourceApplyGradientDescent", 18, 19))
    plane.line("tf_data_pool/1", ("net/DecodeJpeg:DecodeJpeg", 10, 14))
    return xspace


def test_times_are_those_of_a_step_without_calls_inside(tmp_path: Path) -> None:
    found = _profile(_on_processors(), tmp_path)

    assert (found.steps, found.experiment) == (2, "small")
    assert _kinds(found) == {
        "DecodeJpeg": (2.0, 0.5),
        "MatMul": (1.5, 1.0),
        "PartitionedCall": (0.75, 0.5),
        "Relu": (0.25, 0.5),
        "ResourceApplyGradientDescent": (0.5, 0.5),
    }
    assert _parts(found) == {
        "input pipeline (tf.data)": (2.0, 0.0),
        "dense": (2.0, 0.5),
        "optimizer": (0.5, 0.0),
    }
    assert found.op_seconds == pytest.approx(5e-3)
    assert found.busy == pytest.approx(0.6)


def test_shares_add_up_in_full_and_in_short_tables(tmp_path: Path) -> None:
    found = _profile(_on_processors(), tmp_path)

    assert sum(row.share for row in found.kinds) == pytest.approx(1)
    assert sum(row.share for row in found.parts) == pytest.approx(1)
    assert [row[0] for row in kind_table(found, 2).rows] == ["DecodeJpeg", "MatMul", "3 others"]
    assert [row[0] for row in part_table(found, 1).rows] == ["dense", "2 others"]
    for rows, column in ((kind_table(found, 2).rows, 2), (part_table(found, 1).rows, 3)):
        assert sum(float(row[column].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.2)


@pytest.mark.parametrize(
    ("waits", "expected", "limits"),
    [
        ([], 0.0, "does not limit training."),
        ([(10, 11.4)], 0.1, "limits training a little."),
        ([(12, 18), (10, 11)], 0.3, "limits training."),
        ([(12, 14.5)], 0.0, "does not limit training."),  # while an op runs
    ],
)
def test_only_waits_in_which_no_op_runs_count(
    waits: list[tuple[float, float]], expected: float, limits: str, tmp_path: Path
) -> None:
    events = [event for start, end in waits for event in fetch(start, end)]

    found = _profile(_on_processors(*events), tmp_path)

    if waits:
        assert found.step_seconds == pytest.approx(5e-3)
    assert found.wait_share == pytest.approx(expected)
    assert verdict(found).endswith(limits)
    text = "\n".join(section_lines(profile_sections(found, 10)))
    assert ("task.train_data.on_device" in text) is (expected > 0.05)


def test_batches_that_a_loop_makes_before_its_first_step_are_left_out(tmp_path: Path) -> None:
    xspace = new_xspace()
    loop = "while/body/_1/while/StatefulPartitionedCall/while/body/_2/while/"
    made = "while/body/_1/while/PartitionedCall/"
    Plane(xspace, "/host:CPU").line("python", steps(2, 10, 20)).line(
        "tf_Compute/1",
        ("PartitionedCall/Xor:Xor", 10, 12),
        (f"{loop}net/dense/MatMul:MatMul", 12, 14),
        (f"{made}Xor:Xor", 14, 15),
        (f"{loop}gradient_tape/net/dense/MatMul/MatMul:MatMul", 15, 18),
        (f"{made}Xor:Xor", 18, 20),
    )

    found = _profile(xspace, tmp_path)

    assert found.step_seconds == pytest.approx(3e-3)
    assert found.wait_seconds == pytest.approx(0.5e-3)
    assert {row.part: row.forward for row in found.parts}["input"] == pytest.approx(2.5e-3)


def test_ops_of_a_gpu_are_those_of_its_streams(tmp_path: Path) -> None:
    xspace = _on_processors(*fetch(13, 17))
    matmul = {"tf_op": "net/dense/MatMul:MatMul"}
    Plane(xspace, "/device:GPU:0").line(
        "Stream #1(Compute)",
        ("kernel_a", 5, 6, matmul),  # before the steps
        ("kernel_a", 11, 13, matmul),
        ("kernel_b", 13, 14, matmul),
        ("kernel_c", 17, 18, {"tf_op": "gradient_tape/net/out/MatMul/MatMul:MatMul"}),
        ("fused", 18, 19, {"hlo_op": "fusion.2"}),
    ).line("Stream #2(MemcpyH2D)", ("MemcpyH2D", 11, 12)).line(
        "TensorFlow Ops", ("net/dense/MatMul:MatMul", 11, 14)
    )

    found = _profile(xspace, tmp_path)

    assert found.devices == ("GPU:0",)
    expected = {"MatMul": (2.0, 1.5), "fusion": (0.5, 0.5), "MemcpyH2D": (0.5, 0.5)}
    assert _kinds(found) == expected
    assert _parts(found)["dense"] == (1.5, 0.0)
    assert _parts(found)["out"] == (0.0, 0.5)
    # From 14 to 17, the device waits for the host, and the host for the input.
    assert found.wait_seconds == pytest.approx(1.5e-3)
    assert found.busy == pytest.approx(0.5)
    assert "GPU:0 is 50% busy" in "\n".join(section_lines(profile_sections(found, 10)))


def test_ops_of_programs_on_a_gpu_have_the_layers_of_the_graph(tmp_path: Path) -> None:
    xspace = _on_processors()
    dense = "while/net/dense/MatMul"
    names = {"fusion.1": dense, "fusion.2": "gradient_tape/net/out/MatMul", "copy.3": ""}
    add_program(xspace, 5, "step", names)
    launched = {"tf_op": "while/xla_run:_XlaRun", "hlo_module": "step", "program_id": 5}
    Plane(xspace, "/device:GPU:0").line(
        "Stream #1(Compute)",
        ("kernel_a", 11, 13, {**launched, "hlo_op": "fusion.1"}),
        ("kernel_b", 13, 14, {**launched, "hlo_op": "fusion.2"}),
        ("kernel_c", 14, 15, {**launched, "hlo_op": "copy.3"}),
    )

    found = _profile(xspace, tmp_path)

    assert _kinds(found) == {"fusion": (1.5, 1.0), "copy": (0.5, 0.5)}
    assert _parts(found)["dense"] == (1.0, 0.0)
    assert _parts(found)["out"] == (0.0, 0.5)


def test_ops_of_two_programs_on_a_processor_keep_their_layers(tmp_path: Path) -> None:
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line("python", steps(1, 10, 20)).line(
        "tf_Compute/1",
        ("dot.1", 11, 13, {"hlo_op": "dot.1", "program_id": 5}),
        ("dot.1", 13, 14, {"hlo_op": "dot.1", "program_id": 6}),
    )
    add_program(xspace, 5, "step", {"dot.1": "net/dense/MatMul"})
    add_program(xspace, 6, "step", {"dot.1": "gradient_tape/net/out/MatMul"})

    found = _profile(xspace, tmp_path)

    assert _parts(found) == {"dense": (2.0, 0.0), "out": (0.0, 1.0)}


def test_ops_of_a_tpu_are_those_of_its_line_of_xla_ops(tmp_path: Path) -> None:
    xspace = _on_processors()
    stats = {"tf_op": "net/dense/MatMul:", "hlo_op": "fusion.7"}
    Plane(xspace, "/device:TPU:0").line("XLA Ops", ("%fusion.7 = f32", 11, 13, stats)).line(
        "XLA Modules", ("module", 10, 14)
    ).line("Steps", ("1", 10, 14))

    found = _profile(xspace, tmp_path)

    assert [(row.kind, row.seconds) for row in found.kinds] == [("fusion", pytest.approx(1e-3))]
    assert [row.part for row in found.parts] == ["dense"]


def test_steps_that_another_program_marked_are_read(tmp_path: Path) -> None:
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line(
        "python", ("train", 10, 12, {"step_num": 1}), ("train", 14, 16, {"step_num": 2})
    ).line("tf_Compute/1", ("a/MatMul:MatMul", 10, 11), ("a/MatMul:MatMul", 12.5, 13.5))

    found = _profile(xspace, tmp_path, None)

    assert (found.steps, found.busy, found.cores) == (2, None, 0)
    assert [row.calls for row in found.kinds] == [0.5]


def test_ops_that_python_runs_one_by_one_are_those_of_tensorflow(tmp_path: Path) -> None:
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line(
        "python",
        steps(1, 10, 20),
        ("EagerLocalExecute: IteratorGetNext", 11, 13),
        ("EagerLocalExecute: __inference_f_3", 14, 19),
        ("EagerLocalExecute: MatMul", 15, 18),
    ).line("tf_data_pool/1", ("net/DecodeJpeg:DecodeJpeg", 10, 11))

    found = _profile(xspace, tmp_path)

    expected = {"DecodeJpeg": (1.0, 1.0), "IteratorGetNext": (2.0, 1.0), "MatMul": (3.0, 1.0)}
    assert _kinds(found) == expected
    assert (found.wait_share, found.pipeline) == (pytest.approx(0.2), True)


def test_steps_without_ops_have_empty_tables(tmp_path: Path) -> None:
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line("python", steps(1, 10, 20))

    found = _profile(xspace, tmp_path)

    assert (found.kinds, found.parts, found.op_seconds) == ((), (), 0.0)
    assert "ops by type: 0 ms per step" in "\n".join(section_lines(profile_sections(found, 10)))


def test_a_trace_without_steps_is_refused(tmp_path: Path) -> None:
    xspace = new_xspace()
    Plane(xspace, "/host:CPU").line("python", ("loop", 10, 12))
    write_trace(xspace, tmp_path)

    with raises("empty-data"):
        read_profile(tmp_path)


def test_the_newest_trace_is_found_from_each_directory_above_it(tmp_path: Path) -> None:
    old = write_trace(_on_processors(), tmp_path, time="2")
    new = write_trace(_on_processors(), tmp_path, time="1")
    os.utime(old.hosts[0], (1, 1))

    for directory in (tmp_path, tmp_path / "train", new.directory):
        assert newest_trace(directory) == new
    assert newest_trace(old.directory) == old
    assert newest_trace(tmp_path / "train" / "plugins") is None


@pytest.mark.parametrize("text", ["", "[]", '{"layers": 3, "cores": "a", "model": null}'])
def test_a_damaged_description_counts_as_missing(text: str, tmp_path: Path) -> None:
    trace = write_trace(_on_processors(), tmp_path, KNOWN)
    assert read_description(trace) == KNOWN
    (trace.directory / "steps.json").write_text(text)

    assert read_description(trace) == TraceDescription()
