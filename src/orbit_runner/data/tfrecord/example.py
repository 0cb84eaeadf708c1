"""Reads a tf.Example without TensorFlow, to check a file early."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

_KINDS = ("bytes", "float", "int64")


@functools.cache
def example_class() -> type[Any]:
    """Returns the class of a tf.Example.

    The messages are defined in `tensorflow/core/example/example.proto` and `feature.proto`.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )

    def add_field(message: Any, name: str, number: int, kind: str, **others: Any) -> None:
        field = message.field.add(name=name, number=number, label=proto.LABEL_OPTIONAL, **others)
        if kind[0].isupper():
            field.type, field.type_name = proto.TYPE_MESSAGE, f".tensorflow.{kind}"
        else:
            field.type = getattr(proto, f"TYPE_{kind.upper()}")

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(_KINDS, 1):
        values = file.message_type.add(name=f"{kind.capitalize()}List")
        add_field(values, "value", 1, kind)
        values.field[0].label = proto.LABEL_REPEATED
        add_field(feature, f"{kind}_list", number, values.name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    add_field(entry, "key", 1, "string")
    add_field(entry, "value", 2, "Feature")
    add_field(features, "feature", 1, "Features.FeatureEntry")
    features.field[0].label = proto.LABEL_REPEATED
    add_field(file.message_type.add(name="Example"), "features", 1, "Features")
    # Not the default pool, to which TensorFlow adds its own classes.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def features_of(record: bytes) -> dict[str, Any]:
    """Returns the `tf.train.Feature` messages of a serialized tf.Example, sorted by name.

    Raises ValueError if `record` is not such a message.
    """
    from google.protobuf.message import DecodeError

    example = example_class()()
    try:
        example.ParseFromString(record)
    except DecodeError:
        raise ValueError("bytes that are not a tf.Example") from None
    return dict(sorted(example.features.feature.items()))


def example_problem(record: bytes, expected: Mapping[str, str]) -> str:
    """Returns why a record is not a tf.Example with one value of each expected feature, or "".

    `expected` maps the name of each feature to its kind: `bytes`, `float` or `int64`.
    """
    words = " and ".join(f"{name} ({kind})" for name, kind in expected.items())
    try:
        features = features_of(record)
    except ValueError:
        return f"is not a tf.Example, expected one with {words}"
    for name, kind in expected.items():
        if name not in features:
            got = ", ".join(sorted(features)) or "(none)"
            return f"got features {got}, expected {words}"
        actual_kind, values = values_of(features[name])
        if (actual_kind, len(values)) != (kind, 1):
            got = f"{len(values)} × {actual_kind}" if values else "no value"
            return f"{name}: got {got}, expected one {kind} value"
    return ""


def values_of(feature: Any) -> tuple[str, Sequence[Any]]:
    """Returns the kind of a feature's values, `bytes`, `float` or `int64`, and the values."""
    field = feature.WhichOneof("kind")
    return (field.removesuffix("_list"), getattr(feature, field).value) if field else ("", ())


def value_of(feature: Any, kind: str = "") -> Any:
    """Returns the only value of a feature, whose kind must be `kind` unless that is "".

    Raises ValueError if there is none, or several, or one of another kind.
    """
    actual_kind, values = values_of(feature)
    if len(values) != 1 or kind not in ("", actual_kind):
        of_kind = f" of {actual_kind}" if actual_kind else ""
        raise ValueError(f"got {len(values)} values{of_kind}")
    return values[0]
