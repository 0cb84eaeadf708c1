"""`run`: trains a Keras model from Python, with the run directory and the exactness of `runner`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from orbit_runner.checkpoint.disk_errors import disk_error_scope
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import ExportFailed, RunnerError, python_error
from orbit_runner.jobs.gin_bindings import restored_gin_scope
from orbit_runner.jobs.preflight import (
    check_before_start,
    check_same_config,
    setting_error_scope,
)
from orbit_runner.jobs.train_job import (
    CONTINUED_CODES,
    Job,
    compare_data,
    default_model_dir,
    prepare_process,
    run_job,
)
from orbit_runner.reporting.progress.factory import make_progress
from orbit_runner.run_directory.metric_records import read_curves
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.saved_run import History, RunBase
from orbit_runner.tasks.keras.keras_objects import (
    loss_settings,
    optimizer_setting,
    output_metric_settings,
)
from orbit_runner.tasks.keras.passed_objects import register_arrays, register_function
from orbit_runner.tasks.keras.sources import arrays_of, specs_of
from orbit_runner.tasks.keras.stream import is_tf_dataset
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.keras_callbacks import sort_callbacks
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note
from orbit_runner.utils.streams import missing_streams_scope
from orbit_runner.utils.user_code import is_installed

if TYPE_CHECKING:
    import keras
    import tf_keras

    from orbit_runner.tasks.keras.given_models import CompiledSettings

_MODE = "train_and_eval"
_OPTIMIZER = "adam"
_LEARNING_RATE = 0.001


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
        status: `finished`, or `stopped` if `trainer.max_time` ended the run.
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
    metrics: Sequence[object] | Mapping[str, object] = (),
    optimizer: object = None,
    learning_rate: float | None = None,
    callbacks: Sequence[object] = (),
    epochs: float = 1,
    batch_size: int = 32,
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
            is an array or a dict of arrays by input, and `y` an array or a dict of arrays by
            output. Or an object with `__len__` and `__getitem__` that returns such an item of one
            example for each index; a `PyDataset` of Keras returns batches. Or a function that
            returns any of these, or a tf.data dataset of batches. Or the section `train_data` as a
            dict: `{"source": "csv", "input_path": "people.csv"}`.
        validation: The validation data, in the same form.
        validation_data: The same as `validation`, by the name that `fit` of Keras has for it.
        validation_split: The fraction of the training data that is held out for validation.
        loss: A loss of Keras: `"mse"`, `{"name": "huber", "delta": 0.5}` or
            `tf_keras.losses.Huber(0.5)`; or a function or class; or one for each output, by name
            or in their order. By default, that of `compile`, or inferred from labels and outputs,
            if they determine it.
        loss_weights: The weights of the losses of several outputs, by name or in their order.
        metrics: Metrics of Keras, such as `"accuracy"` or `tf_keras.metrics.AUC()`, or subclasses
            of `tf_keras.metrics.Metric`; or a list for each output. By default, those of `compile`.
        optimizer: The name of an optimizer, an object such as `tf_keras.optimizers.SGD(0.1)`, or
            the section `trainer.optimizer_config`. By default, the one that a model is compiled
            with, or `adam`.
        learning_rate: The learning rate of an optimizer that is given by name. By default, 0.001.
        callbacks: Objects of subclasses of `orbit_runner.Callback`. Of Keras' callbacks,
            `EarlyStopping`, and those that only have methods for the begin and end of the training
            and of epochs, such as `LambdaCallback`.
        epochs: The number of epochs.
        batch_size: The number of examples per step, over all replicas.
        model_dir: The run directory. By default, `runs/NAME/TIME`.
        seed: The random seed.
        name: The name of the experiment. By default, that of the function.
        overrides: Other settings by dotted path, such as
            `{"runtime.distribution_strategy": "mirrored"}`.
        resume: `same`: resume only if the data and all settings that affect the weights are the
            same. `override`: always resume.
        progress: How progress is shown on standard error: `auto`, `bar`, `plain`, `json` or `none`.
            In a notebook, `auto` and `bar` are one output of the cell, which changes in place.

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
        with missing_streams_scope(), source_cache_scope():
            if validation is not None and validation_data is not None:
                raise RunnerError(
                    "validation_data is set, too; remove one",
                    path="validation",
                    code="conflict",
                )
            evaluates = not (validation is None and validation_data is None) or validation_split > 0
            kept_callbacks, replaced = sort_callbacks(callbacks, evaluates=evaluates)
            settings = _settings(
                model,
                data,
                validation={"validation": validation, "validation_data": validation_data},
                validation_split=validation_split,
                loss=loss,
                loss_weights=loss_weights,
                metrics=metrics,
                optimizer=optimizer,
                learning_rate=learning_rate,
                epochs=epochs,
                batch_size=batch_size,
                seed=seed,
                name=name,
            )
            return _run(
                [*settings, *(("callbacks", path, value) for path, value in replaced.items())],
                overrides or {},
                model_dir,
                resume,
                progress,
                kept_callbacks,
                evaluates=evaluates,
            )
    except RunnerError as error:
        # The message says all that the user needs, so the traceback ends here.
        raise python_error(error) from None
    except Exception as error:
        # With its own cause and context, if it has them.
        raise error.with_traceback(_skip_own_frames(error.__traceback__))  # noqa: B904


def _skip_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Returns a traceback that begins with code of the user, such as a function that was passed.

    Returns all of it if none of its frames are of the user.
    """
    # The first frame is that of `run`, which called all others.
    inner = None if traceback is None else traceback.tb_next
    while inner is not None and is_installed(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner or traceback


def _settings(
    model: object,
    data: object,
    *,
    validation: Mapping[str, object],  # by the argument
    validation_split: float,
    loss: object,
    loss_weights: object,
    metrics: object,
    optimizer: object,
    learning_rate: float | None,
    epochs: float,
    batch_size: int,
    seed: int,
    name: str,
) -> list[tuple[str, str, object]]:
    """Returns settings: the argument of `run`, the dotted path and the value."""
    if "tensorflow" not in sys.modules:  # The function that builds the model may import it.
        prepare_environment(RuntimeConfig())
    compiled = _compiled_settings(model)
    if compiled is not None:
        loss = loss or compiled.loss
        loss_weights = loss_weights or compiled.loss_weights
        metrics = metrics or compiled.metrics
        if optimizer is None and compiled.optimizer:
            optimizer = _compiled_optimizer(model)
    batch_sizes = ["task.train_data.global_batch_size"]
    settings: list[tuple[str, str, object]] = [
        ("model", "task.model", _model_setting(model)),
        ("data", "task.train_data", _data_setting(data, "data")),
        ("loss", "task.loss", loss_settings(loss)),
        ("loss_weights", "task.loss_weights", loss_weights),
        ("metrics", "task.metrics", output_metric_settings(metrics)),
        ("epochs", "trainer.train_epochs", epochs),
        ("optimizer", "trainer.optimizer_config", _optimizer_setting(optimizer, learning_rate)),
        ("seed", "runtime.seed", seed),
        ("name", "name", name or _default_name(model)),
    ]
    given = {argument: arrays for argument, arrays in validation.items() if arrays is not None}
    for argument, arrays in given.items():
        settings.append((argument, "task.validation_data", _data_setting(arrays, argument)))
    if validation_split:
        settings.append(("validation_split", "task.validation_split", validation_split))
    if given or validation_split:
        batch_sizes.append("task.validation_data.global_batch_size")
    return [*settings, *(("batch_size", path, batch_size) for path in batch_sizes)]


def _run(
    settings: Sequence[tuple[str, str, Any]],
    overrides: Mapping[str, Any],
    model_dir: str | os.PathLike[str] | None,
    resume: str,
    progress: str,
    callbacks: Sequence[Callback],
    *,
    evaluates: bool,
) -> RunResult:
    if resume not in ("same", "override"):
        raise RunnerError(
            f"got {resume!r}, allowed: 'same', 'override'", path="resume", code="not-allowed"
        )
    flags = [("task", "task.name", "keras"), ("trainer", "trainer", _TRAINER_DEFAULTS)]
    flags += [(f"run({argument}=…)", path, value) for argument, path, value in settings]
    flags += [(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    texts = tuple((flag, path, json.dumps(value)) for flag, path, value in flags)
    resolved = resolve(Request(flags=texts))
    directory = default_model_dir(resolved.config.name)
    if model_dir is not None:
        directory = Path(model_dir).expanduser()
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
    with RunLock(directory), display.shown_scope():
        # Check the data first: other arrays also change their digest in the config.
        job = dataclasses.replace(job, data=compare_data(job))
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
        if results.stopped:
            note(_continuation(directory))
    model = getattr(trained, "keras_3_model", trained)  # What the function of the user returned.
    if results.export_problem:
        raise ExportFailed(results.export_problem, model=model, logs=results.metrics)
    return RunResult(
        model=model,
        metrics=results.metrics,
        best=results.best,
        history=History(read_curves(RunDirectory(directory).metrics)),
        step=results.step,
        weights=results.fingerprint,
        inexact=list(results.inexact or ()),
        model_dir=directory,
        status="stopped" if results.stopped else "finished",
    )


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


def _continuation(directory: Path) -> str:
    return f"  run       {directory}\n  continue  call run again with model_dir={str(directory)!r}"


# The setting that names a model that a program passed, by its layers and initial weights.
_MODEL_DIGEST = "task.model.digest"
_TRAINER_DEFAULTS = {"validation_epochs": 1, "summary_interval": 100, "checkpoint_interval": 1000}


def _model_setting(model: object) -> str | Mapping[str, object]:
    if isinstance(model, (str, Mapping)):
        return model
    if isinstance(model, os.PathLike):
        return {"file": os.fspath(model)}
    if _is_model(model):
        from orbit_runner.tasks.keras.given_models import register_model

        return {"digest": register_model(model)}
    if not callable(model):
        raise RunnerError(
            f"got {type(model).__name__}, expected a function or a model",
            path="model",
            code="wrong-type",
        )
    return register_function(model)


def _compiled_settings(model: object) -> CompiledSettings | None:
    """Returns what `compile` of a model was told; None if `model` is not a compiled model."""
    if not _is_model(model):
        return None
    from orbit_runner.tasks.keras.given_models import compiled_settings

    return compiled_settings(model)


def _is_model(value: object) -> bool:
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__}
    return any(name.endswith(("training.Model", "models.model.Model")) for name in names)


def _compiled_optimizer(model: object) -> Mapping[str, object]:
    """Returns the section `trainer.optimizer_config` of the optimizer of a compiled model."""
    try:
        return optimizer_setting(getattr(model, "optimizer", None))
    except RunnerError as error:
        raise RunnerError(
            f"compile(): {error}\nor pass the argument optimizer, which wins over compile()",
            path="model",
            code=error.code,
        ) from error


def _data_setting(data: object, name: str) -> Mapping[str, object]:
    if isinstance(data, Mapping) and isinstance(data.get("source"), str):
        return data
    if is_tf_dataset(data):
        raise RunnerError(
            f"{name}: got a tf.data dataset, expected the function that returns it, so that a "
            "resumed run has the same batches",
            code="wrong-type",
        )
    if callable(data) and not hasattr(data, "__getitem__"):
        return {"source": "arrays", "function": register_function(data)}
    source = arrays_of(data, name)
    features = {
        path: {"shape": list(shape), "dtype": dtype}
        for path, (shape, dtype) in specs_of(source).items()
    }
    return {"source": "memory", "digest": register_arrays(source), "features": features}


def _optimizer_setting(optimizer: object, learning_rate: float | None) -> Mapping[str, object]:
    optimizer = _OPTIMIZER if optimizer is None else optimizer
    if isinstance(optimizer, str):
        rate = _LEARNING_RATE if learning_rate is None else learning_rate
        constant = {"type": "constant", "constant": {"learning_rate": rate}}
        return {"optimizer": {"type": optimizer}, "learning_rate": constant}
    if learning_rate is not None:
        raise RunnerError(
            f"got {learning_rate}, which has no effect, because optimizer is not a "
            "name\nset the learning rate of the optimizer",
            path="learning_rate",
            code="no-effect",
        )
    if isinstance(optimizer, Mapping):
        return optimizer
    if isinstance(optimizer, type) or not hasattr(optimizer, "get_config"):
        raise RunnerError(
            f"got {optimizer!r}, expected a name, an object such as "
            "tf_keras.optimizers.SGD(0.1), or the section trainer.optimizer_config",
            path="optimizer",
            code="wrong-type",
        )
    return optimizer_setting(optimizer)


def _default_name(model: object) -> str:
    if isinstance(model, Mapping):
        model = model.get("build") or model.get("file", "")
    if isinstance(model, os.PathLike) or (isinstance(model, str) and ":" not in model):
        model = Path(model).stem
    if _is_model(model):
        model = getattr(model, "name", "")
    text = model if isinstance(model, str) else getattr(model, "__name__", "")
    plain = "".join(_plain_characters(text.rpartition(":")[2]))
    return plain.strip("_") or "model"


def _plain_characters(text: str) -> Iterator[str]:
    yield from (letter if letter.isalnum() else "_" for letter in text)
