"""An inspection of an experiment as a self-contained HTML page."""

from __future__ import annotations

import base64
from html import escape

from orbit_runner.inspection.experiment import Batch, Inspection
from orbit_runner.inspection.picture_sheet import picture_sheet, png
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.html.page import page, section, table
from orbit_runner.reporting.html.svg_chart import Series, line_chart
from orbit_runner.reporting.inspection_text import (
    LAYER_HEAD,
    TENSOR_HEAD,
    batch_title,
    layer_rows,
    measured_rows,
    memory_rows,
    memory_title,
    model_rows,
    schedule_rows,
    tensor_rows,
)
from orbit_runner.state.layer_table import HEAD, table_rows


def inspection_page(found: Inspection) -> str:
    """Returns the HTML page of an inspection."""
    title = f"{found.name or 'experiment'}: inspection"
    measured = table((), measured_rows(found)) if found.measured is not None else ""
    body = [
        f"<h1>{escape(title)}</h1>",
        section("Model", table((), model_rows(found))),
        section("Layers", table(LAYER_HEAD, layer_rows(found))),
        section("Fine-tuning", table(HEAD, table_rows(found.fine_tuning))),
        *(
            section(batch_title(name, found).capitalize(), _batch(batch))
            for name, batch in found.batches.items()
        ),
        section(memory_title(found).capitalize(), table((), memory_rows(found))),
        section("Schedule", _schedule(found.schedule)),
        section("Measured", measured),
    ]
    return page(title, "\n".join(filter(None, body)))


def _batch(batch: Batch) -> str:
    if batch.problem:
        return f"<p class=bad>{escape(batch.problem)}</p>"
    return "".join(
        [
            table(TENSOR_HEAD, tensor_rows(batch)),
            table((), list(batch.sentences)),
            _sheet(batch),
        ]
    )


def _sheet(batch: Batch) -> str:
    if batch.images is None:
        return ""
    encoded = base64.b64encode(png(picture_sheet(batch.images, batch.labels))).decode()
    return (
        "<figure><figcaption>inputs, as the model gets them</figcaption>"
        '<img style="max-width:100%" alt="pictures of the batch" '
        f'src="data:image/png;base64,{encoded}"></figure>'
    )


def _schedule(schedule: Schedule | str) -> str:
    if isinstance(schedule, str):
        return f"<p class=bad>{escape(schedule)}</p>"
    charts = [
        line_chart(name.replace("_", " "), [Series(name, curve)])
        for name, curve in schedule.rates.items()
    ]
    return f"{table((), schedule_rows(schedule))}<div class=charts>{''.join(charts)}</div>"
