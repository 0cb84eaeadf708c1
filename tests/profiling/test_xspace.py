"""Reading the files of TensorFlow's profiler without TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from orbit_runner.profiling.xspace import (
    CompiledPrograms,
    message_class,
    read_xspace,
    stats_of,
)
from tests.support.problems import raises
from tests.support.xspaces import add_program, new_xspace

STATS = {
    "text": {"str_value": "a"},
    "negative": {"int64_value": -7},
    "large": {"uint64_value": 2**63},
    "real": {"double_value": 0.5},
    "named": {"ref_value": 9},
}


def _of_tensorflow() -> Any:
    """Returns an `XSpace` of TensorFlow's class, with other fields, too."""
    xspace = xplane_pb2.XSpace(errors=["e"], warnings=["w"], hostnames=["h"])
    plane = xspace.planes.add(id=3, name="/host:CPU")
    plane.event_metadata[5].id = 5
    plane.event_metadata[5].name = "a/MatMul:MatMul"
    plane.event_metadata[5].display_name = "MatMul"
    plane.event_metadata[5].metadata = b"\xff"
    plane.stat_metadata[9].name = "a value"
    line = plane.lines.add(id=1, display_id=2, name="thread", display_name="t", timestamp_ns=10**18)
    event = line.events.add(metadata_id=5, offset_ps=2**40, duration_ps=11)
    line.events.add(metadata_id=5, num_occurrences=4)
    for number, (name, value) in enumerate(STATS.items(), 1):
        plane.stat_metadata[number].name = name
        event.stats.add(metadata_id=number, **value)
    return xspace


def test_values_are_those_that_tensorflow_wrote(tmp_path: Path) -> None:
    written = _of_tensorflow()
    (tmp_path / "h.xplane.pb").write_bytes(written.SerializeToString())

    (plane,) = read_xspace(tmp_path / "h.xplane.pb").planes

    assert plane.name == "/host:CPU"
    assert plane.event_metadata[5].name == "a/MatMul:MatMul"
    assert plane.event_metadata[5].display_name == "MatMul"
    (line,) = plane.lines
    assert (line.name, line.timestamp_ns) == ("thread", 10**18)
    first, second = line.events
    assert (first.metadata_id, first.offset_ps, first.duration_ps) == (5, 2**40, 11)
    assert (second.offset_ps, second.duration_ps) == (0, 0)
    assert stats_of(plane, first.stats) == {
        "text": "a", "negative": -7, "large": 2**63, "real": 0.5, "named": "a value",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ours", "theirs", "known"),
    [
        ("XSpace", xplane_pb2.XSpace, "XStat.ref_value"),
        ("HloProto", hlo_pb2.HloProto, "HloInstructionProto.metadata"),
    ],
)
def test_declared_fields_have_the_numbers_and_types_of_tensorflow(
    ours: str, theirs: Any, known: str
) -> None:
    def fields(descriptor: Any, seen: set[str]) -> dict[str, tuple[int, int, bool]]:
        if descriptor.name in seen:
            return {}
        found = {}
        for field in descriptor.fields:
            found[f"{descriptor.name}.{field.name}"] = field.number, field.type, field.is_repeated
            if field.message_type is not None:
                found |= fields(field.message_type, seen | {descriptor.name})
        return found

    declared = fields(message_class(ours).DESCRIPTOR, set())
    expected = fields(theirs.DESCRIPTOR, set())

    assert known in declared
    assert {name: expected[name] for name in declared} == declared


def test_ops_of_programs_have_the_names_of_the_ops_that_they_are_from() -> None:
    xspace = new_xspace()
    add_program(xspace, 7, "step", {"dot.1": "net/a/MatMul", "copy.2": ""})
    add_program(xspace, 9, "step", {"dot.1": "net/b/MatMul"})
    xspace.planes[0].event_metadata[11].stats.add(metadata_id=1, bytes_value=b"damaged")

    programs = CompiledPrograms(xspace)

    for program, expected in ((7, "net/a/MatMul"), (9, "net/b/MatMul")):
        assert programs.op_name("dot.1", {"program_id": program}) == expected
    # Without the number, the name of the module decides, and the first program has it.
    assert programs.op_name("dot.1", {"hlo_module": "step"}) == "net/a/MatMul"
    for stats in ({}, {"program_id": 11}, {"hlo_module": "other"}):
        assert programs.op_name("dot.1", stats) == ""
    assert programs.op_name("copy.2", {"program_id": 7}) == ""


@pytest.mark.parametrize("content", [b"no protocol buffer", b"\x0a\xff"])
def test_a_damaged_file_is_reported(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(content)

    with raises("damaged-file"):
        read_xspace(path)
