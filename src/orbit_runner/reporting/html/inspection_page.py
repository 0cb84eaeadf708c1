"""An inspection of an experiment as a self-contained HTML page."""

from __future__ import annotations

import base64
from html import escape

from orbit_runner.inspection.experiment import Batch, Inspection
from orbit_runner.inspection.picture_sheet import thumbnails
from orbit_runner.inspection.schedule import Schedule
from orbit_runner.reporting.html.model_section import layers_table, picture_grid
from orbit_runner.reporting.html.page import page, section, table
from orbit_runner.reporting.html.svg_chart import Series, line_chart
from orbit_runner.reporting.report_data.files import Picture
from orbit_runner.reporting.text.inspection import (
    CLASS_WEIGHTS,
    COLUMN_HEAD,
    LEFT_OUT,
    WARNINGS,
    batch_title,
    class_weight_rows,
    column_rows,
    data_title,
    equal_row_rows,
    measured_rows,
    memory_rows,
    memory_title,
    schedule_rows,
    table_title,
)
from orbit_runner.reporting.text.layers import TENSOR_HEAD, tensor_rows, total_rows
from orbit_runner.reporting.text.scale import (
    SCALE_HEAD,
    assumptions,
    command_rows,
    scale_rows,
    scale_title,
)
from orbit_runner.state.layer_table import HEADER, table_rows

_MOST_PICTURES = 64


def inspection_page(found: Inspection) -> str:
    """Returns the HTML page of an inspection."""
    title = f"{found.name or 'experiment'}: inspection"
    measured = table((), measured_rows(found)) if found.measured is not None else ""
    body = [
        f"<h1>{escape(title)}</h1>",
        section("Model", table((), total_rows(found.layers, found.step_flops))),
        section("Layers", layers_table(found.layers)),
        section("Fine-tuning", table(HEADER, table_rows(found.fine_tuning))),
        *_class_weights(found),
        *_table_summary(found),
        *(
            section(data_title(name).capitalize(), table((), rows))
            for name, rows in found.data.items()
        ),
        *(
            section(batch_title(name, found).capitalize(), _batch(batch))
            for name, batch in found.batches.items()
        ),
        section(memory_title(found).capitalize(), table((), memory_rows(found))),
        section("Schedule", _schedule(found.schedule)),
        section(WARNINGS.capitalize(), _warnings(found)),
        section("Measured", measured),
        *_scale(found),
    ]
    return page(title, "\n".join(filter(None, body)))


def _warnings(found: Inspection) -> str:
    return "".join(f"<p class=bad>{escape(text)}</p>" for text in found.warnings)


def _scale(found: Inspection) -> list[str]:
    plan = found.scale
    if plan is None:
        return []
    content = [
        f"<p>{escape(assumptions(plan))}</p>",
        table(SCALE_HEAD, scale_rows(plan)),
        *(
            f"<p>{escape(purpose)}:<br><code>{escape(command)}</code></p>"
            for purpose, command in command_rows(plan)
        ),
    ]
    title = scale_title(plan)
    return [section(title[:1].upper() + title[1:], "".join(content))]


def _class_weights(found: Inspection) -> list[str]:
    if not found.loss_by_class:
        return []
    return [section(CLASS_WEIGHTS.capitalize(), table((), class_weight_rows(found)))]


def _table_summary(found: Inspection) -> list[str]:
    summary = found.table
    if summary is None:
        return []
    return [
        *(
            section(table_title(name, summary).capitalize(), table(COLUMN_HEAD, column_rows(rows)))
            for name, rows in summary.columns.items()
        ),
        *(
            [section(LEFT_OUT.capitalize(), table((), [(line,) for line in summary.left_out]))]
            if summary.left_out
            else []
        ),
        section("Rows with equal features", table((), equal_row_rows(summary))),
    ]


def _batch(batch: Batch) -> str:
    if batch.problem:
        return f"<p class=bad>{escape(batch.problem)}</p>"
    return "".join(
        [
            _grid(batch),
            table((), batch.sentences),
            table(TENSOR_HEAD, tensor_rows(batch.tensors), right=3),
        ]
    )


def _grid(batch: Batch) -> str:
    if batch.images is None:
        return ""
    files = thumbnails(batch.images[:_MOST_PICTURES])
    labels = [*batch.labels, *[""] * len(files)]
    return picture_grid(
        [
            Picture(base64.b64encode(file).decode(), label)
            for file, label in zip(files, labels, strict=False)
        ]
    )


def _schedule(schedule: Schedule | str) -> str:
    if isinstance(schedule, str):
        return f"<p class=bad>{escape(schedule)}</p>"
    charts = [
        line_chart(name.replace("_", " "), [Series(name, curve)])
        for name, curve in schedule.rates.items()
    ]
    return f"{table((), schedule_rows(schedule))}<div class=charts>{''.join(charts)}</div>"
