"""`run`: trains a Keras model from Python, with the run directory and the exactness of `runner`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import numbers
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.checkpoint.disk_errors import disk_error_scope
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import (
    DataError,
    ExportFailed,
    RunnerError,
    format_list,
    python_error,
    shorten,
)
from orbit_runner.jobs.gin_bindings import restored_gin_scope
from orbit_runner.jobs.preflight import check_before_start, check_same_config, setting_error_scope
from orbit_runner.jobs.train_job import (
    CONTINUED_CODES,
    Job,
    check_data,
    default_model_dir,
    prepare_process,
    run_job,
)
from orbit_runner.reporting.progress.lines import make_progress
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunLock, refused_start_scope
from orbit_runner.saved_run import History, RunBase, directory_of
from orbit_runner.tasks.keras.examples import ArrayExamples
from orbit_runner.tasks.keras.passed_objects import (
    inexact_objects,
    passed_functions_scope,
    register_function,
)
from orbit_runner.tasks.keras.stream import StreamSource, is_tf_dataset, passed_stream
from orbit_runner.tasks.keras.user_arrays import arrays_of, register_data
from orbit_runner.tasks.keras_items import CLASS_NAME, CONFIG, items_of
from orbit_runner.tf_internals import compile_arguments, is_compiled
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.keras_callbacks import sort_callbacks
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    import keras
    import tf_keras

_MODE = "train_and_eval"
_BATCH_SIZE = "global_batch_size"
_USUAL_BATCH_SIZE = 32
_LEAST_EPOCHS = 1e-6
_PROGRESS = ("auto", "bar", "plain", "none")


@dataclasses.dataclass(frozen=True, repr=False)
class RunResult(RunBase):
    """The result of `run`. A notebook shows it as a table with the curves.

    Attributes:
        model: The trained model, of the Keras that the function builds it with.
        metrics: The metrics of the last evaluation; empty if there was none.
        best: The best evaluation; empty if the best checkpoint is not kept.
        history: The values of each metric, at all evaluations and training records of the run.
        step: The last step.
        weights: The SHA-256 of all weights.
        inexact: Why the run may not be reproducible; empty if it is.
        model_dir: The run directory.
        status: `finished`.
    """

    model: tf_keras.Model | keras.Model
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    history: History
    step: int
    weights: str
    inexact: Sequence[str]
    model_dir: Path
    status: str


def run(
    model: (
        Callable[..., tf_keras.Model | keras.Model]
        | tf_keras.Model
        | keras.Model
        | os.PathLike[str]
        | str
        | Mapping[str, object]
    ),
    data: object,
    *,
    validation: object = None,
    validation_data: object = None,
    validation_split: float = 0.0,
    loss: str | Mapping[str, object] | Sequence[object] | Callable[..., object] = "",
    loss_weights: Sequence[float] | Mapping[str, float] = (),
    metrics: str | Sequence[object] | Mapping[str, object] = (),
    weighted_metrics: Sequence[object] | Mapping[str, object] = (),
    optimizer: object = None,
    learning_rate: float | None = None,
    callbacks: Sequence[object] = (),
    epochs: float = 1,
    batch_size: int | None = None,
    model_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    name: str = "",
    overrides: Mapping[str, object] | None = None,
    resume: str = "same",
    progress: str = "auto",
) -> RunResult:
    """Trains a Keras model on arrays, and evaluates it after each epoch.

    If `model_dir` contains a run with the same settings and data, the run is resumed, and ends with
    the weights of a run that never stopped.

    The random generators of Python, NumPy, TensorFlow and Keras, the determinism of ops, eager
    mode, the precision policy and gin bindings are restored at the end, also after an error.

    Args:
        model: The function that builds and returns a model of Keras. A function in a module can be
            found again by its name, so that `config.yaml` reproduces the run. Or a model: the run
            trains a copy of it, from its weights, if it has them already. Or the path of a `.keras`
            file; or the setting `task.model`: `"my_package:build"`, or
            `{"build": …, "arguments": {…}}`.
        data: The training data: `(x, y)` or `(x, y, w)` with the weights `w` of the examples. `x`
            is an array, or arrays by input as a dict or in a list, and `y` the same by output. Or
            an object with `__len__` and `__getitem__` that returns such an item of one example for
            each index; a `PyDataset` of Keras returns batches. Or a tf.data dataset of batches. Or
            a function that returns any of these. Or the section `train_data` as a dict:
            `{"source": "csv", "input_path": "people.csv"}`.
        validation: The validation data, in the same form.
        validation_data: The same as `validation`, by the name that `fit` of Keras has for it.
        validation_split: The fraction of the training data that is held out for validation.
        loss: A loss of the Keras of the model: `"mse"`, `keras.losses.Huber(0.5)` or
            `{"class_name": "Huber", "config": {"delta": 0.5}}`; or a function or class; or one for
            each output, by name or in their order. By default, that of `compile`, or inferred from
            labels and outputs, if they determine it.
        loss_weights: The weights of the losses of several outputs, by name or in their order.
        metrics: Metrics in the same forms, such as `"accuracy"` or `keras.metrics.AUC()`; or a list
            for each output. By default, those of `compile`.
        weighted_metrics: The same, for metrics that use the weights of the examples.
        optimizer: An optimizer in the same forms, such as `"adam"` or `keras.optimizers.SGD(0.1)`,
            or the section `trainer.optimizer_config` as a dict. By default, the one that the model
            is compiled with, or `adam`.
        learning_rate: The learning rate of an optimizer that is given by name.
        callbacks: Objects of subclasses of `orbit_runner.Callback`, and callbacks of Keras. Those
            of epochs and evaluations are called as in `fit`; those of batches are refused, because
            steps run in a graph.
        epochs: The number of epochs.
        batch_size: The number of examples per step, over all replicas. By default, that of a
            tf.data dataset or `PyDataset`, or 32.
        model_dir: The run directory. By default, `runs/NAME/TIME`.
        seed: The random seed.
        name: The name of the experiment. By default, that of the function.
        overrides: Other settings by dotted path, such as
            `{"runtime.distribution_strategy": "mirrored"}`.
        resume: `same`: resume only if the data and all settings that affect the weights are the
            same. `override`: always resume.
        progress: How progress is shown on standard error: `auto`, `bar`, `plain` or `none`.

    Returns:
        The model, its metrics and the fingerprint of its weights.

    Raises:
        RunnerError: The model, the data or a setting is wrong, or another process trains in
            `model_dir`. Nothing was trained.
        Diverged: The loss diverged.
        Interrupted: A signal ended the run after it had saved a checkpoint.
        ExportFailed: The run is complete, but its export (`trainer.export_subdir`) failed.
    """
    try:
        with source_cache_scope(), passed_functions_scope():
            if validation is not None and validation_data is not None:
                raise RunnerError(
                    "validation_data is set, too; remove one",
                    path="validation",
                    code="conflict",
                )
            _check_numbers(
                epochs=epochs,
                seed=seed,
                batch_size=batch_size,
                learning_rate=learning_rate,
                validation_split=validation_split,
            )
            _check_choice("resume", resume, ("same", "override"))
            _check_choice("progress", progress, _PROGRESS)
            if overrides is not None and not (
                isinstance(overrides, Mapping) and all(isinstance(name, str) for name in overrides)
            ):
                raise _type_error("overrides", overrides, "a dict of settings by dotted path")
            evaluates = not (validation is None and validation_data is None) or validation_split > 0
            kept_callbacks, replaced = sort_callbacks(callbacks, evaluates=evaluates)
            settings = _settings(
                model,
                data,
                validation={"validation": validation, "validation_data": validation_data},
                validation_split=validation_split,
                items={
                    "loss": loss,
                    "loss_weights": loss_weights,
                    "metrics": [metrics] if isinstance(metrics, str) else metrics,
                    "weighted_metrics": weighted_metrics,
                    "optimizer": optimizer,
                },
                learning_rate=learning_rate,
                epochs=epochs,
                batch_size=batch_size,
                seed=seed,
                name=name,
            )
            return _run(
                [*settings, *(("callbacks", path, value) for path, value in replaced.items())],
                overrides or {},
                None if model_dir is None else directory_of(model_dir, "model_dir"),
                resume,
                progress,
                kept_callbacks,
                evaluates=evaluates,
            )
    except RunnerError as error:
        # The message says all that the user needs, so the traceback ends here.
        raise python_error(error) from None


def _check_numbers(**arguments: object) -> None:
    """Raises `RunnerError` for arguments that are no numbers. NumPy's numbers are some, too."""
    for name, value in arguments.items():
        may_be_none = name in ("batch_size", "learning_rate") and value is None
        if not may_be_none and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
            raise _type_error(name, value, "a number")
    epochs: Any = arguments["epochs"]
    if 0 < epochs < _LEAST_EPOCHS:
        raise RunnerError(
            f"got {epochs}, allowed: at least {_LEAST_EPOCHS}", path="epochs", code="out-of-range"
        )


def _check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise RunnerError(
            f"got {value!r}, allowed: {', '.join(map(repr, allowed))}",
            path=name,
            code="not-allowed",
        )


def _type_error(name: str, value: object, expected: str) -> RunnerError:
    return RunnerError(
        f"got {shorten(repr(value))}, expected {expected}", path=name, code="wrong-type"
    )


def _json_text(flag: str, value: object) -> str:
    """Returns a value as JSON. Raises `RunnerError` if JSON cannot represent it."""
    try:
        return json.dumps(value, default=_json_value)
    except (TypeError, ValueError) as error:
        argument = flag.removeprefix("run(").removesuffix("=…)")
        raise RunnerError(str(error), path=argument, code="wrong-type") from error


def _json_value(value: object) -> object:
    """Returns the value of JSON for one that Python's own module does not convert."""
    if isinstance(value, np.floating):
        return float(str(value))  # The shortest text of the same number: 0.1 of a float32.
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return [*value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(
        f"got {shorten(repr(value))}, expected a number, a text, a bool, None, a list or a dict"
    )


def _settings(
    model: object,
    data: object,
    *,
    validation: Mapping[str, object],  # by the argument
    validation_split: float,
    items: dict[str, object],  # by the argument
    learning_rate: float | None,
    epochs: float,
    batch_size: int | None,
    seed: int,
    name: str,
) -> list[tuple[str, str, object]]:
    """Returns settings: the argument of `run`, the dotted path and the value."""
    if "tensorflow" not in sys.modules:  # The function that builds the model may import it.
        prepare_environment(RuntimeConfig())
    for argument, value in _compile_arguments(model).items():
        if _is_unset(items.get(argument)) and value is not None:
            items[argument] = value
    train_data = _data_setting(data, "data")
    sizes = {"task.train_data": train_data.get(_BATCH_SIZE, _USUAL_BATCH_SIZE)}
    settings: list[tuple[str, str, object]] = [
        ("model", "task.model", _model_setting(model)),
        ("data", "task.train_data", train_data),
        ("epochs", "trainer.train_epochs", epochs),
        ("seed", "runtime.seed", seed),
        ("name", "name", name or _default_name(model)),
        *_optimizer_settings(items.pop("optimizer"), learning_rate),
    ]
    for argument, value in items.items():
        if not _is_unset(value):
            item = value if argument == "loss_weights" else items_of(value, argument)
            settings.append((argument, f"task.{argument}", item))
    if validation_split:
        settings.append(("validation_split", "task.validation_split", validation_split))
        sizes["task.validation_data"] = sizes["task.train_data"]
    for argument, arrays in validation.items():
        if arrays is not None:
            section = _data_setting(arrays, argument)
            settings.append((argument, "task.validation_data", section))
            sizes["task.validation_data"] = section.get(_BATCH_SIZE, sizes["task.train_data"])
    for path, size in sizes.items():
        known = size if batch_size is None else batch_size
        settings.append(("batch_size", f"{path}.{_BATCH_SIZE}", known))
    return settings


def _is_unset(value: object) -> bool:
    return value is None or (isinstance(value, (str, tuple)) and not value)


def _run(
    settings: Sequence[tuple[str, str, Any]],
    overrides: Mapping[str, Any],
    model_dir: Path | None,
    resume: str,
    progress: str,
    callbacks: Sequence[Callback],
    *,
    evaluates: bool,
) -> RunResult:
    flags = [("task", "task.name", "keras"), ("trainer", "trainer", _TRAINER_DEFAULTS)]
    flags += [(f"run({argument}=…)", path, value) for argument, path, value in settings]
    flags += [(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    texts = tuple((flag, path, _json_text(flag, value)) for flag, path, value in flags)
    resolved = resolve(Request(flags=texts))
    directory = model_dir or default_model_dir(resolved.config.name)
    mode = _MODE if evaluates else "train"
    cluster = check_before_start(resolved, mode, directory)
    if cluster is not None:
        raise RunnerError(
            "does not support the members of a cluster; use `runner` with config.yaml",
            path="run",
            code="not-supported",
        )
    job = Job(
        resolved=resolved,
        config=resolved.config,
        mode=mode,
        model_dir=directory,
        resume=resume,
        callbacks=tuple(callbacks),
        command=("python", *sys.argv),
    )
    display = make_progress(
        progress, title=f"{resolved.config.name} · {mode}", place=str(directory)
    )
    with (
        refused_start_scope(directory),
        RunLock(directory),
        _warnings_only_scope(),
        display.shown_scope(),
    ):
        _note_inexact_parts(resolved.config, callbacks)
        # Check the data first: other arrays also change their digest in the config.
        job = dataclasses.replace(job, data=check_data(job))
        if resume == "same":
            with _model_advice_scope():
                check_same_config(resolved, directory)
        with setting_error_scope(resolved), disk_error_scope(directory):
            prepare_process(job)
            with paused_collection_scope():
                from orbit_runner.determinism.numerics import restored_process_scope
            try:
                with restored_process_scope(), restored_gin_scope(resolved):
                    trained, results = run_job(job, display)
            except (RunnerError, KeyboardInterrupt) as error:
                if getattr(error, "exit_code", 130) in CONTINUED_CODES:
                    note(_continuation(directory))
                raise
    model = getattr(trained, "keras_3_model", trained)  # What the function of the user returned.
    if results.export_problem:
        raise ExportFailed(results.export_problem, model=model, logs=results.metrics)
    return RunResult(
        model=model,
        metrics=results.metrics,
        best=results.best,
        history=History(MetricLog(RunDirectory(directory).metrics).curves()[0]),
        step=results.step,
        weights=results.fingerprint,
        inexact=list(results.inexact or ()),
        model_dir=directory,
        status="finished",
    )


def _note_inexact_parts(config: ExperimentConfig, callbacks: Sequence[Callback]) -> None:
    """Reports what the program passed and `config.yaml` cannot name."""
    reasons = [*inexact_objects(config), *(item.inexact_reason for item in callbacks)]
    if reasons := [reason for reason in reasons if reason]:
        note(f"note: config.yaml alone does not reproduce this run:\n{format_list(reasons)}")


@contextlib.contextmanager
def _model_advice_scope() -> Iterator[None]:
    """Adds to an error about another model how each start of a program can build the same one."""
    try:
        yield
    except RunnerError as error:
        if _MODEL_DIGEST not in str(error):
            raise
        raise RunnerError(
            f"{error}\nthe layers or the initial weights of the model differ; to build the same "
            "model at each start, call keras.utils.set_random_seed(1) first",
            code=error.code,
        ) from None


@contextlib.contextmanager
def _warnings_only_scope() -> Iterator[None]:
    logger = logging.getLogger("tensorflow")
    logger.addFilter(_is_shown)
    try:
        yield
    finally:
        logger.removeFilter(_is_shown)


def _is_shown(record: logging.LogRecord) -> bool:
    # In a notebook, unlike elsewhere, TensorFlow prints its INFO messages.
    return record.levelno >= logging.WARNING or not hasattr(sys, "ps1")


def _continuation(directory: Path) -> str:
    return f"  run       {directory}\n  continue  call run again with model_dir={str(directory)!r}"


# The setting that names a model that a program passed, by its layers and initial weights.
_MODEL_DIGEST = "task.model.digest"
_TRAINER_DEFAULTS = {"validation_epochs": 1, "checkpoint_interval": 1000}


def _model_setting(model: object) -> str | Mapping[str, object]:
    if isinstance(model, (str, Mapping)):
        return model
    if isinstance(model, os.PathLike):
        return {"file": os.fspath(model)}
    if _is_model(model):
        from orbit_runner.tasks.keras.model_builder import register_model

        return {"digest": register_model(model)}
    if not callable(model) or _has_base(model, "layer.Layer"):
        raise RunnerError(
            f"got {type(model).__name__}, expected a function or a model",
            path="model",
            code="wrong-type",
        )
    return register_function(model)


def _compile_arguments(model: object) -> Mapping[str, object]:
    """Returns what `compile` of a model was told; {} if `model` is not a compiled model."""
    if not _is_model(model) or not is_compiled(model):
        return {}
    names = ("loss", "loss_weights", "metrics", "weighted_metrics")
    arguments = {name: compile_arguments(model).get(name) for name in names}
    return {**arguments, "optimizer": getattr(model, "optimizer", None)}


def _is_model(value: object) -> bool:
    return _has_base(value, "training.Model", "models.model.Model")


def _has_base(value: object, *classes: str) -> bool:
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__)
    return any(name.endswith(classes) for name in names)


def _data_setting(data: object, name: str) -> Mapping[str, Any]:
    """Returns the section of the data that the argument `name` has."""
    if isinstance(data, Mapping) and isinstance(data.get("source"), str):
        return data
    if callable(data) and not hasattr(data, "__getitem__"):
        return {"source": "arrays", "function": register_function(data)}
    try:
        source: ArrayExamples | StreamSource = (
            passed_stream(data, name, is_training=name == "data")
            if is_tf_dataset(data)
            else arrays_of(data, name)
        )
    except DataError as error:
        reason = str(error).removeprefix(f"{name}: ")
        raise RunnerError(reason, path=name, code=error.code) from error
    setting = {"source": "memory", "digest": register_data(source)}
    size = source.batch_size
    return {**setting, _BATCH_SIZE: size} if size else setting


def _optimizer_settings(
    optimizer: Any, learning_rate: float | None
) -> list[tuple[str, str, object]]:
    """Returns the setting of an optimizer; [] if the model may be compiled with one."""
    if isinstance(optimizer, Mapping) and CLASS_NAME not in optimizer:
        setting: tuple[str, str, Any] = ("optimizer", "trainer.optimizer_config", optimizer)
    elif optimizer is None and learning_rate is None:
        return []
    else:
        name = "adam" if optimizer is None else optimizer
        item = items_of(name, "optimizer")
        if isinstance(name, str) and learning_rate is not None:
            config = {"learning_rate": learning_rate}
            return [("optimizer", "task.optimizer", {CLASS_NAME: name, CONFIG: config})]
        setting = ("optimizer", "task.optimizer", item)
    if learning_rate is not None:
        raise RunnerError(
            f"got {learning_rate}, which has no effect, because optimizer is not a "
            "name\nset the learning rate of the optimizer",
            path="learning_rate",
            code="no-effect",
        )
    return [setting]


def _default_name(model: object) -> str:
    if isinstance(model, Mapping):
        model = model.get("build") or model.get("file", "")
    if isinstance(model, os.PathLike) or (isinstance(model, str) and ":" not in model):
        model = Path(model).stem
    if _is_model(model):
        model = getattr(model, "name", "")
    text = model if isinstance(model, str) else getattr(model, "__name__", "")
    letters = (character if character.isalnum() else "_" for character in text.rpartition(":")[2])
    return "".join(letters).strip("_") or "model"
