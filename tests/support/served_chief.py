"""A chief of the tests: runs what the JSON of its first argument says, and prints what it does.

Workers record the step and content of each batch in their working directory.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

from orbit_runner import train_lib  # noqa: E402
from orbit_runner.checkpoint.fingerprint import weights_fingerprint  # noqa: E402
from orbit_runner.distribute.cluster.description import Cluster, Member  # noqa: E402
from orbit_runner.errors import RunnerError  # noqa: E402
from orbit_runner.tasks.image_classification.task import ImageClassificationTask  # noqa: E402
from orbit_runner.train.callbacks.base import Callback  # noqa: E402
from orbit_runner.utils.log import PlainMessages, log_scope  # noqa: E402
from tests.support.digits import digits_config  # noqa: E402
from tests.support.served import content  # noqa: E402
from tests.support.toy import toy_config, toy_task  # noqa: E402


def say(**event: Any) -> None:
    plain = {
        key: float(value) if hasattr(value, "dtype") else value for key, value in event.items()
    }
    print(json.dumps(plain), flush=True)


class Teller(Callback):
    def on_loop_end(self, run: Any, logs: Any) -> None:
        say(**logs, trained=run.step)

    def on_evaluate(self, run: Any, logs: Any) -> None:
        say(**logs, evaluated=run.step)

    def on_train_end(self, run: Any) -> None:
        say(inexact=run.inexact_reasons())


class NotingTask(ImageClassificationTask):
    """Digits; each batch is recorded where it is made."""

    def batch_at(self, params: Any) -> Callable[[tf.Tensor], Any]:
        batch_of_step = super().batch_at(params)

        def batch(step: tf.Tensor) -> Any:
            image, label = batch_of_step(step)
            tf.print(step, content(image, label), output_stream="file://batches.txt")
            return image, label

        return batch


class Streaming:
    """A task like Model Garden's: its pipeline always starts from the beginning.

    It counts its updates double, as if all work had been done again after workers were lost.
    """

    batch_at = None

    def __init__(self, task: Any) -> None:
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def train_step(self, inputs: Any, model: Any, optimizer: Any, metrics: Any) -> Any:
        logs = self._task.train_step(inputs, model=model, optimizer=optimizer, metrics=metrics)
        optimizer.iterations.assign_add(1)
        return logs

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        dataset = self._task.build_inputs(params)
        if not params.is_training:
            return dataset
        pipelines, own = input_context.num_input_pipelines, input_context.input_pipeline_id
        batches = dataset.shard(pipelines, own)

        def note(*batch: Any) -> Any:
            tf.print(own, output_stream="file://batches.txt")
            return batch

        return batches.map(note)


class Said(PlainMessages):
    """Reports notes and phases."""

    def __init__(self) -> None:
        super().__init__(lambda text: say(note=text))

    def phase(self, text: str, *, minor: bool = False) -> None:
        if not minor:
            say(phase=text)


def main(order: dict[str, Any]) -> None:
    jobs = {role: tuple(addresses) for role, addresses in order["jobs"].items()}
    cluster = Cluster(jobs, Member("chief", 0, jobs["chief"][0]), "the test")
    toy = order.get("task") == "toy"
    make = toy_config if toy else digits_config
    config = make(runtime__distribution_strategy="parameter_server", **order["changes"])
    with log_scope(Said()):
        strategy, task = train_lib.prepare(
            config, order["model_dir"], cluster=cluster, mode=order["mode"]
        )
        with strategy.scope():
            kinds = {"noting": NotingTask, "toy": lambda _: toy_task(config)}
            task = kinds.get(order.get("task", ""), lambda _: task)(config.task)
        if order.get("wrap") == "streaming":
            task = Streaming(task)
        hold = Path(order["model_dir"]) / "hold"

        def held(logs: Any) -> None:
            while hold.exists():
                time.sleep(0.05)

        model, logs = train_lib.run_experiment(
            strategy,
            task,
            order["mode"],
            config,
            order["model_dir"],
            callbacks=[Teller()],
            train_actions=[held],
            enable_async_checkpointing=order.get("asynchronous", False),
            resume=order.get("resume", "same"),
        )
    say(done=weights_fingerprint(model), **logs)


if __name__ == "__main__":
    code = 0
    try:
        main(json.loads(sys.argv[1]))
    except RunnerError as error:
        say(error=type(error).__name__, message=str(error))
        code = error.exit_code
    except BaseException as error:
        import traceback

        traceback.print_exc()
        say(error=type(error).__name__, message=str(error)[:1000])
        code = 1
    os._exit(code)
