"""The part of a step that an op belongs to, by its name."""

from __future__ import annotations

import pytest

from orbit_runner.profiling.calls import Op
from orbit_runner.profiling.profile import (
    COMPILED,
    INPUT,
    LOSS,
    OPTIMIZER,
    OTHERS,
    PIPELINE,
    REDUCTION,
    OpAttribution,
    StepPart,
)
from orbit_runner.profiling.trace_files import TraceDescription

LAYERS = ("stem", "block", "block/conv", "block/conv_1", "block/inner", "block/inner/dense")
KNOWN = TraceDescription(model="net", layers=LAYERS, optimizers=("Adam",))
LOOP = "while/body/_8/while/StatefulPartitionedCall/while/body/_45/while/"
CHUNK = "while/body/_8/while/PartitionedCall/"
TAPE = f"{LOOP}gradient_tape/while/"


def _ops(*names: str) -> list[Op]:
    return [Op(name, name.rpartition("/")[2], "graph") for name in names]


TRAINED = _ops(
    f"{TAPE}net/stem/MatMul/MatMul",
    f"{TAPE}cross_entropy/mul",
    f"{TAPE}replica_1/cross_entropy/mul",
    f"{TAPE}net/block/conv/Conv2D/Conv2DBackpropInput",
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{LOOP}net/stem/MatMul", StepPart("stem")),
        (f"{TAPE}net/stem/MatMul/MatMul_1", StepPart("stem", True)),
        (f"{LOOP}net/block/conv/Conv2D", StepPart("block/conv")),
        (f"{LOOP}net/block/conv_1/Conv2D", StepPart("block/conv_1")),
        # A second call of the same layer, and of the model.
        (f"{LOOP}net_1/block/conv_2/Conv2D", StepPart("block/conv")),
        (f"{LOOP}net/block/inner/dense/Tensordot/MatMul", StepPart("block/inner/dense")),
        (f"{LOOP}net/block/add", StepPart("block")),
        (f"{LOOP}net/concat", StepPart("net")),
        (f"{LOOP}replica_1/net/stem/MatMul", StepPart("stem")),
        (f"{TAPE}replica_1/net/stem/MatMul/MatMul", StepPart("stem", True)),
        (f"{LOOP}block/inner/dense/MatMul", StepPart("block/inner/dense")),
        (f"{LOOP}Adam/Adam/update_4/mul", StepPart(OPTIMIZER)),
        (f"{LOOP}Adam/Pow", StepPart(OPTIMIZER)),
        (f"{LOOP}cross_entropy/LogSoftmax", StepPart(LOSS)),
        (f"{TAPE}cross_entropy/mul_3", StepPart(LOSS, True)),
        (f"{LOOP}replica_1/cross_entropy/LogSoftmax", StepPart(LOSS)),
        (f"{LOOP}ArgMax", StepPart(OTHERS)),
        (f"{LOOP}replica_1/ArgMax", StepPart(OTHERS)),
        (f"{TAPE}UnsortedSegmentSum", StepPart(OTHERS, True)),
        (f"{CHUNK}while/body/_7/while/Xor", StepPart(INPUT)),
        ("PartitionedCall/GatherV2", StepPart(INPUT)),
        ("while/body/_8/while/replica_1/GatherV2", StepPart(INPUT)),
    ],
)
def test_ops_of_a_graph_that_makes_its_batches(name: str, expected: StepPart) -> None:
    (op,) = _ops(name)

    assert OpAttribution(KNOWN, [*TRAINED, op], fetches=False).attribute(op) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Op("Adam/CollectiveReduceV2", "CollectiveReduceV2", "graph"), StepPart(REDUCTION)),
        (Op("update/ResourceApplyMomentum", "ResourceApplyMomentum", "graph"), StepPart(OPTIMIZER)),
        (Op("net/stem/MatMul", "MatMul", "pipeline"), StepPart(PIPELINE)),
        (Op("update/ResourceApplyMomentum", "fusion", "compiled"), StepPart(OPTIMIZER)),
        (Op("while/net/stem/MatMul", "fusion", "compiled"), StepPart("stem")),
        (Op("gradient_tape/net/stem/MatMul", "dot", "compiled"), StepPart("stem", True)),
        (Op("make_batches/while/Xor", "fusion", "compiled"), StepPart(INPUT)),
        (Op("while/ArgMax", "fusion", "compiled"), StepPart(OTHERS)),
        (Op("dot.3", "dot", "xla"), StepPart(COMPILED)),
    ],
)
def test_ops_with_a_place_of_their_own(op: Op, expected: StepPart) -> None:
    assert OpAttribution(KNOWN, [*TRAINED, op], fetches=True).attribute(op) == expected


def test_ops_outside_the_loop_are_no_input_if_batches_come_from_a_pipeline() -> None:
    (op,) = _ops("while/cond/_0/while/Less")

    assert OpAttribution(KNOWN, [*TRAINED, op], fetches=True).attribute(op) == StepPart(OTHERS)


def test_layers_of_a_trace_without_description_are_the_scopes_in_the_model() -> None:
    forward, loss = _ops("net/stem/dense/MatMul", "cross_entropy/LogSoftmax")
    others = _ops(
        "gradient_tape/net/stem/dense/MatMul/MatMul",
        "gradient_tape/net/head/MatMul/MatMul",
        "gradient_tape/cross_entropy/sum/Tile",
    )

    attribution = OpAttribution(TraceDescription(), [forward, loss, *others], fetches=True)

    assert attribution.attribute(forward) == StepPart("stem")
    assert attribution.attribute(others[1]) == StepPart("head", True)
    assert attribution.attribute(loss) == StepPart(LOSS)
