"""Reads `*.xplane.pb`, the files of TensorFlow's profiler, without importing TensorFlow.

A file is a protocol buffer, an `XSpace`. It has planes, such as the processor or a GPU; a plane has
lines, such as threads; and a line has events. Events refer to names in tables of their plane. The
plane `/host:metadata` contains the programs of XLA that ran, as messages `HloProto`. Only the
fields that are used are declared here; the parser skips the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from orbit_runner.errors import RunnerError, first_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

    # The values of an event by name: numbers, texts and bytes.
    Stats: TypeAlias = dict[str, Any]


_PACKAGE = "orbit_runner.profiling"
_FIELD = descriptor_pb2.FieldDescriptorProto
_INT64 = _FIELD.TYPE_INT64
_UINT64 = _FIELD.TYPE_UINT64
_DOUBLE = _FIELD.TYPE_DOUBLE
_STRING = _FIELD.TYPE_STRING
_BYTES = _FIELD.TYPE_BYTES
_PROGRAMS = "/host:metadata"
_PROGRAM = "Hlo Proto"
# Message to its fields: name, number, and type or message. `*` marks a repeated field, `?` one that
# is not, and `{}` a map from an int64.
_MESSAGES: dict[str, tuple[tuple[str, int, int | str], ...]] = {
    "XSpace": (("planes", 1, "*XPlane"),),
    "XPlane": (
        ("name", 2, _STRING),
        ("lines", 3, "*XLine"),
        ("event_metadata", 4, "{}XEventMetadata"),
        ("stat_metadata", 5, "{}XStatMetadata"),
    ),
    "XLine": (("name", 2, _STRING), ("timestamp_ns", 3, _INT64), ("events", 4, "*XEvent")),
    "XEvent": (
        ("metadata_id", 1, _INT64),
        ("offset_ps", 2, _INT64),
        ("duration_ps", 3, _INT64),
        ("stats", 4, "*XStat"),
    ),
    "XStat": (
        ("metadata_id", 1, _INT64),
        ("double_value", 2, _DOUBLE),
        ("uint64_value", 3, _UINT64),
        ("int64_value", 4, _INT64),
        ("str_value", 5, _STRING),
        ("bytes_value", 6, _BYTES),
        ("ref_value", 7, _UINT64),
    ),
    "XEventMetadata": (
        ("id", 1, _INT64),
        ("name", 2, _STRING),
        ("display_name", 4, _STRING),
        ("stats", 5, "*XStat"),
    ),
    "XStatMetadata": (("id", 1, _INT64), ("name", 2, _STRING)),
    "HloProto": (("hlo_module", 1, "?HloModuleProto"),),
    "HloModuleProto": (("name", 1, _STRING), ("computations", 3, "*HloComputationProto")),
    "HloComputationProto": (("instructions", 2, "*HloInstructionProto"),),
    "HloInstructionProto": (("name", 1, _STRING), ("metadata", 7, "?OpMetadata")),
    "OpMetadata": (("op_name", 2, _STRING),),
}


def read_xspace(path: Path) -> Message:
    """Returns the `XSpace` in a file.

    Raises:
        RunnerError: The file cannot be read, or is not an `XSpace`.
    """
    try:
        return message_class("XSpace").FromString(path.read_bytes())
    except OSError as error:
        raise RunnerError(
            f"{path}: cannot be read: {error.strerror}", code="unreadable-file"
        ) from error
    except DecodeError as error:
        raise RunnerError(
            f"{path}: is damaged: {first_line(error)}\ndelete it, and profile the steps again",
            code="damaged-file",
        ) from error


def stats_of(plane: Message, stats: Iterable[Message]) -> Stats:
    """Returns the values of an event or of its metadata by name."""
    names = plane.stat_metadata
    return {names[stat.metadata_id].name: _value(plane, stat) for stat in stats}


def _value(plane: Message, stat: Message) -> Any:
    # A number of 0 and an empty text have no field, and mean the same here.
    if stat.ref_value:
        return plane.stat_metadata[stat.ref_value].name
    numbers = stat.int64_value or stat.uint64_value or stat.double_value
    return stat.str_value or stat.bytes_value or numbers


class CompiledPrograms:
    """The programs of XLA in a trace: which op of a TensorFlow graph each of their ops is from.

    XLA keeps the names of the ops that it compiles. For a fusion, that is the name of its last op.
    """

    def __init__(self, xspace: Message) -> None:
        # By the number of the program, or by the name of its module, and by the name of the op.
        self._names: dict[tuple[int | str, str], str] = {}
        for plane in xspace.planes:
            if plane.name != _PROGRAMS:
                continue
            for number in sorted(plane.event_metadata):
                program = stats_of(plane, plane.event_metadata[number].stats).get(_PROGRAM)
                if isinstance(program, bytes):
                    self._add(number, program)

    def _add(self, number: int, program: bytes) -> None:
        try:
            module = message_class("HloProto").FromString(program).hlo_module
        except DecodeError:  # Its ops have no names then.
            return
        for computation in module.computations:
            for op in computation.instructions:
                if op.metadata.op_name:
                    self._names[number, op.name] = op.metadata.op_name
                    self._names.setdefault((module.name, op.name), op.metadata.op_name)

    def op_name(self, hlo_op: str, stats: Stats) -> str:
        """Returns the name of the op of a graph; "" if the trace does not have it.

        Args:
            hlo_op: The name of the op of the program.
            stats: The statistics of its event, which name the program.
        """
        keys = (stats.get("program_id", 0), stats.get("hlo_module", ""))
        return next((self._names[key, hlo_op] for key in keys if (key, hlo_op) in self._names), "")


@functools.cache
def message_class(name: str) -> Any:
    """Returns the class of a message, such as `XSpace`."""
    return message_factory.GetMessageClass(_messages().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@functools.cache
def _messages() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="orbit_runner/xspace.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            _declare(message, field, number, kind)
    # A pool of its own, because TensorFlow's has messages of the same format.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _declare(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: int | str
) -> None:
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if not isinstance(kind, str):
        field.type = kind
        return
    field.type = _FIELD.TYPE_MESSAGE
    if not kind.startswith("?"):
        field.label = _FIELD.LABEL_REPEATED
    field.type_name = f".{_PACKAGE}.{kind.lstrip('*?{}')}"
    if kind.startswith("{}"):
        # A map is a repeated message of pairs, whose name protobuf prescribes.
        pair = message.nested_type.add(
            name="".join(word.capitalize() for word in name.split("_")) + "Entry"
        )
        pair.options.map_entry = True
        pair.field.add(name="key", number=1, type=_INT64, label=_FIELD.LABEL_OPTIONAL)
        pair.field.add(
            name="value", number=2, type=field.type, label=_FIELD.LABEL_OPTIONAL,
            type_name=field.type_name,
        )  # fmt: skip
        field.type_name = f".{_PACKAGE}.{message.name}.{pair.name}"
