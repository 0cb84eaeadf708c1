"""The layers of a model and the tensors of a batch as sections of a page."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_runner.inspection.rows import LayerRow
from orbit_runner.reporting.html.page import paragraph, table
from orbit_runner.reporting.html.picture_grid import picture_grid
from orbit_runner.reporting.report_data.files import InputData, ModelData
from orbit_runner.reporting.text.layers import (
    LAYER_HEAD,
    TENSOR_HEAD,
    layer_rows,
    tensor_rows,
    total_rows,
)


def model_content(model: ModelData | None) -> str:
    """Returns totals and the table of layers; "" if they are not known."""
    if model is None or not model.layers:
        return ""
    return table((), total_rows(model.layers, model.step_flops)) + layers_table(model.layers)


def layers_table(layers: Sequence[LayerRow]) -> str:
    """Returns the table of layers."""
    return table(LAYER_HEAD, layer_rows(layers), right=3)


def input_content(inputs: InputData | None) -> str:
    """Returns a batch, or why it is not known, and what the files of the data contain."""
    if inputs is None:
        return ""
    facts = table(("section", "column or file", "contents"), inputs.facts) if inputs.facts else ""
    if inputs.problem:
        return paragraph(f"not collected: {inputs.problem}") + facts
    which = "a training batch" if inputs.step is None else f"the batch of step {inputs.step + 1:,}"
    return "".join(
        [
            paragraph(f"{which}, after augmentation, as the model gets it"),
            picture_grid(inputs.pictures),
            table((), inputs.sentences),
            table(TENSOR_HEAD, tensor_rows(inputs.tensors), right=3),
            facts,
        ]
    )
