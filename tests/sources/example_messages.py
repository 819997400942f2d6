"""The messages of `tf.train.Example`, as protobuf alone makes them: TensorFlow takes seconds.

Names and numbers of the fields are those of tensorflow/core/example; `make test-all` has
TensorFlow's own.
"""

from types import SimpleNamespace
from typing import Any

import pytest


def messages() -> Any:
    """What of `tf.train` the tests use."""
    protobuf = pytest.importorskip("google.protobuf.descriptor_pb2")
    pools = pytest.importorskip("google.protobuf.descriptor_pool")
    factory = pytest.importorskip("google.protobuf.message_factory")
    file = protobuf.FileDescriptorProto(name="example.proto", package="tests", syntax="proto3")
    kinds = protobuf.FieldDescriptorProto

    def message(name: str, **fields: tuple[int, Any, bool]) -> Any:
        made = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            told: dict[str, Any] = {"type": kind}
            if isinstance(kind, str):
                told = {"type": kinds.TYPE_MESSAGE, "type_name": f".tests.{kind}"}
            made.field.add(name=field, number=number, label=label, **told)
        return made

    def of_names(name: str, field: str, number: int, value: str) -> None:
        """Adds a map from names to messages."""
        made = next(found for found in file.message_type if found.name == name)
        entry = made.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
        told = {"type": kinds.TYPE_MESSAGE, "type_name": f".tests.{value}"}
        entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, **told)
        told = {"type": kinds.TYPE_MESSAGE, "type_name": f".tests.{name}.{entry.name}"}
        made.field.add(name=field, number=number, label=kinds.LABEL_REPEATED, **told)

    message("BytesList", value=(1, kinds.TYPE_BYTES, True))
    message("FloatList", value=(1, kinds.TYPE_FLOAT, True))
    message("Int64List", value=(1, kinds.TYPE_INT64, True))
    feature = message(
        "Feature",
        bytes_list=(1, "BytesList", False),
        float_list=(2, "FloatList", False),
        int64_list=(3, "Int64List", False),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    message("Features")
    of_names("Features", "feature", 1, "Feature")
    message("FeatureList", feature=(1, "Feature", True))
    message("FeatureLists")
    of_names("FeatureLists", "feature_list", 1, "FeatureList")
    message("Example", features=(1, "Features", False))
    message(
        "SequenceExample", context=(1, "Features", False), feature_lists=(2, "FeatureLists", False)
    )
    pool = pools.DescriptorPool()
    pool.Add(file)
    names = [found.name for found in file.message_type]
    classes = [
        factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}")) for name in names
    ]
    return SimpleNamespace(**dict(zip(names, classes, strict=True)))
