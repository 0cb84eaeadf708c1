"""The rehearsal of a cluster. Does not import TensorFlow."""

from __future__ import annotations

import shlex

from orbit_runner.errors import format_count
from orbit_runner.inspection.scale import ALL_EXAMPLES, IN_MEMORY, ScalePlan
from orbit_runner.reporting.document import Section, Table, Text
from orbit_runner.reporting.numbers import bytes_text, flops_text, number_or_dash, time_text
from orbit_runner.utils.mfu import GPUS, format_si

_MOST_NAMES = 3

Rows = list[tuple[str, ...]]


def scale_section(plan: ScalePlan) -> Section:
    """Returns the figures of a rehearsal, what they rest on, and the commands of the real run."""
    workers = plan.request.workers
    gpus = plan.request.gpus_per_worker
    table = Table(scale_rows(plan), right=[1], sentences=True)
    commands = [
        part
        for purpose, command in _commands(plan)
        for part in (Text(f"{purpose}:"), Text(command, "code"))
    ]
    return Section(
        f"rehearsal: {format_count(workers, 'worker')} × {format_count(gpus, 'GPU')}",
        [Text(_assumptions(plan)), Section("", [table]), Section("", commands)],
    )


def _assumptions(plan: ScalePlan) -> str:
    """Returns what all figures rest on."""
    request = plan.request
    return (
        f"computed, not measured, for multi_worker_mirrored. Assumed: {request.bandwidth_gbit:g} "
        "Gbit/s in each direction on the link of a worker (--bandwidth), "
        f"{time_text(plan.latency_seconds)} for a message to arrive, and "
        f"{format_si(plan.write_bytes_per_second)}B/s to write a checkpoint."
    )


def scale_rows(plan: ScalePlan) -> Rows:
    """Returns the figures of a rehearsal: what it is, its value, and what it is computed from."""
    return [
        *_batch_rows(plan),
        *_gradient_rows(plan),
        *_network_rows(plan),
        *_time_rows(plan),
        *_input_rows(plan),
        *_checkpoint_rows(plan),
    ]


def _commands(plan: ScalePlan) -> Rows:
    """Returns the commands of the real run, with what each is for."""
    workers = plan.request.workers
    gpus = plan.request.gpus_per_worker
    flags = [*plan.request.config_flags]
    strategy = "--runtime.distribution_strategy=multi_worker_mirrored"
    launch = [
        *("runner", "launch", f"--workers={workers}", "--", *flags, strategy),
        f"--runtime.num_gpus={gpus}",
    ]
    return [("to run all workers on one machine", shlex.join(launch))]


def _batch_rows(plan: ScalePlan) -> Rows:
    rows: Rows = [
        ("replicas", f"{plan.replicas:,}", "each has all weights, and computes its part of a batch")
    ]
    if plan.examples_per_step is None or plan.steps_per_epoch is None:
        return [*rows, ("examples of a step", "-", "the size of the training data is not known")]
    mean = "" if float(plan.examples_per_step).is_integer() else ", on average"
    parts = (
        f"as in the config: {number_or_dash(plan.examples_per_replica)} on each replica, "
        f"{number_or_dash(plan.examples_per_worker)} on each worker{mean}"
    )
    return [
        *rows,
        ("examples of a step", number_or_dash(plan.examples_per_step), parts),
        (
            "steps of an epoch",
            number_or_dash(plan.steps_per_epoch),
            f"{number_or_dash(plan.examples_per_epoch)} training examples",
        ),
    ]


def _gradient_rows(plan: ScalePlan) -> Rows:
    dtypes = " and ".join(plan.gradient_dtypes)
    dense = f"{format_count(plan.dense_gradients, 'trainable weight')} of the model, {dtypes}"
    rows: Rows = [("gradients", bytes_text(plan.dense_gradient_bytes), dense)]
    if plan.sparse_gradients:
        names = ", ".join(plan.sparse_gradients[:_MOST_NAMES])
        more = len(plan.sparse_gradients) - _MOST_NAMES
        if more > 0:
            names += f" and {more} more"
        text = f"the rows that the batch of a replica uses, and their indices, of {names}"
        rows.append(("sparse gradients", bytes_text(plan.sparse_gradient_bytes), text))
    if plan.averaged_bytes:
        text = "such as those of batch normalization; replicas average them in each step"
        rows.append(("moving averages", bytes_text(plan.averaged_bytes), text))
    return rows


def _network_rows(plan: ScalePlan) -> Rows:
    if plan.request.workers == 1:
        return [("sent in a step", "0 s", "a single worker sends nothing over the network")]
    if plan.gathered_bytes:
        each = bytes_text(plan.gathered_bytes)
        every = bytes_text(plan.replicas * plan.gathered_bytes)
        text = (
            "(n-1) · (latency + bytes / bandwidth), by all-gather: with logical replicas, "
            f"each of n = {plan.replicas:,} replicas gets the {each} of all others, {every} in all"
        )
        return [("sent in a step", time_text(plan.gather_seconds), text)]
    rows: Rows = [
        (
            "ring all-reduce",
            time_text(plan.ring_seconds or 0.0),
            f"2(n-1) · latency + 2(n-1)/n · gradients / bandwidth, n = {plan.replicas:,} replicas",
        ),
        (
            "tree all-reduce",
            time_text(plan.tree_seconds or 0.0),
            "2 · ⌈log2 n⌉ · latency + 2 · gradients / bandwidth",
        ),
    ]
    if plan.sparse_gradients:
        text = "(n-1) · (latency + bytes / bandwidth), by all-gather: TensorFlow sends them as rows"
        rows.append(("sparse gradients", time_text(plan.gather_seconds), text))
    if plan.averaged_bytes:
        rows.append(("moving averages", time_text(plan.average_seconds), "by all-reduce"))
    total = "the faster all-reduce, which NCCL chooses"
    if plan.all_reduce == "ring":
        total = "the ring, which runtime.all_reduce_alg selects"
    if len(rows) > 2:
        total += ", and the others"
    return [*rows, ("sent in a step", time_text(plan.exchange_seconds), total)]


def _time_rows(plan: ScalePlan) -> Rows:
    if plan.compute_seconds is None:
        return [("computing a step", "-", _unknown_time(plan))]
    is_bound = plan.compute_source == "peak"
    least, most = ("≥ ", "≤ ") if is_bound else ("", "")
    step = plan.step_seconds or 0.0
    source = f"{flops_text(plan.flops)} operations of a replica at the peak of one {_peak(plan)}"
    if not is_bound:
        source = "a step of one replica with its input, measured on this machine (--measure)"
    share = plan.exchange_seconds / step if step else 0.0
    limit = "at most " if is_bound else ""
    rows: Rows = [
        ("computing a step", f"{least}{time_text(plan.compute_seconds)}", source),
        (
            "a step",
            f"{least}{time_text(step)}",
            f"computing, then sending: {limit}{100 * share:.3g}% of it on the network",
        ),
        (
            "steps of a day",
            f"{most}{number_or_dash(plan.steps_per_day)}",
            "no evaluations or checkpoints",
        ),
    ]
    if plan.run_seconds is not None:
        run = f"{plan.train_steps or 0:,} steps, without evaluations and checkpoints"
        rows.append(("the whole run", f"{least}{time_text(plan.run_seconds)}", run))
    return rows


def _peak(plan: ScalePlan) -> str:
    peak = flops_text(plan.peak_flops)
    return f"{plan.request.gpu}, {peak}FLOP/s in {plan.dtype}, which no step reaches"


def _unknown_time(plan: ScalePlan) -> str:
    if plan.request.gpu and plan.peak_flops is None:
        return f"the peak of one {plan.request.gpu} in {plan.dtype} is not known"
    if plan.request.gpu:
        return "the operations of a step are not known"
    return (
        f"not known: name a GPU (--gpu: {', '.join(GPUS)}), or run `runner inspect --measure` on "
        "one of the machines"
    )


def _input_rows(plan: ScalePlan) -> Rows:
    limit = "≤ " if plan.compute_source == "peak" else ""
    rows: Rows = []
    if plan.batch_bytes_per_worker is not None:
        text = f"{bytes_text(plan.batch_bytes_per_worker)} of tensors in a step"
        if plan.batch_bytes_per_second is None:
            value = f"{bytes_text(plan.batch_bytes_per_worker)} a step"
            text = "tensors that the input pipeline of a worker makes"
        else:
            value = f"{limit}{bytes_text(plan.batch_bytes_per_second)}/s"
            text += " that the input pipeline of a worker makes"
        rows.append(("input of a worker", value, text))
    if plan.file_reading == IN_MEMORY and plan.file_bytes:
        text = "training data that each worker reads once, at the start, and keeps in memory"
        rows.append(("files of a worker", bytes_text(plan.file_bytes), text))
    elif plan.file_bytes and plan.file_bytes_per_step is not None:
        text = f"the files of its own examples, of {bytes_text(plan.file_bytes)} in an epoch"
        if plan.file_reading == ALL_EXAMPLES:
            text = (
                f"all {bytes_text(plan.file_bytes)} in each epoch: every worker reads all TFRecord "
                "files, and decodes its own examples"
            )
        value = f"{bytes_text(plan.file_bytes_per_step)} a step"
        if plan.file_bytes_per_second is not None:
            value = f"{limit}{bytes_text(plan.file_bytes_per_second)}/s"
        rows.append(("files of a worker", value, text))
    return rows


def _checkpoint_rows(plan: ScalePlan) -> Rows:
    interval = plan.checkpoint_interval
    often = f"every {interval:,} steps" if interval else "at the end"
    text = f"written by worker 0 in {time_text(plan.checkpoint_seconds)}, {often}; the others wait"
    return [("checkpoint", bytes_text(plan.checkpoint_bytes), text)]
