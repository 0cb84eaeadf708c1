"""The layers of a model and the examples of a batch, with pictures, as sections of a page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from orbit_runner.reporting.html.page import paragraph, table
from orbit_runner.reporting.report_data.files import InputData, ModelData, Picture
from orbit_runner.reporting.text.layers import (
    LAYER_HEAD,
    TENSOR_HEAD,
    layer_rows,
    tensor_rows,
    total_rows,
)
from orbit_runner.step.results import LayerRow

_SMALL = 64  # Pictures with fewer pixels a side are enlarged without smoothing.


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


def picture_grid(pictures: Sequence[Picture]) -> str:
    """Returns the pictures with their captions; "" if there are none."""
    figures = "".join(_figure(one) for one in pictures)
    return f"<div class=pictures>{figures}</div>" if figures else ""


def _figure(picture: Picture) -> str:
    kind = " class=small" if max(_size(picture.png)) < _SMALL else ""
    lines = "<br>".join(escape(line) for line in picture.caption.splitlines())
    caption = f"<figcaption>{lines}</figcaption>" if lines else ""
    return (
        f'<figure><img{kind} alt="{escape(picture.caption)}" '
        f'src="data:image/png;base64,{escape(picture.png)}">{caption}</figure>'
    )


def _size(png: str) -> tuple[int, int]:
    """Returns width and height, which every PNG file has at the same place."""
    start = base64.b64decode(png[:32])
    return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
