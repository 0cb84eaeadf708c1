"""Recommendation: the sampler of negatives alone, and the training that it feeds.

The dataset has the size of MovieLens 1M: 6,040 users, 3,706 items, a million choices, and four
negatives for each. The baseline does in NumPy what the published code does in Python loops: in
batches of 65,536, it draws items, looks them up among the user's choices, and redraws those that it
finds. Training is `ncf_movielens` on a million synthetic choices. All rows count pairs, so they are
comparable.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.harness import Figure, alternate
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.data.ratings.interactions import RatingSource
from orbit_runner.data.ratings.pipeline import train_pairs
from orbit_runner.registry import TASKS
from orbit_runner.train.controller import build_controller, quiet_orbit_scope
from orbit_runner.train.run_builder import build_run

TITLE = "recommendation: pairs drawn and pairs trained on, relative to rejection sampling in NumPy"
UNIT = "pairs/s"
_USERS, _ITEMS, _CHOICES, _NEGATIVES = 6040, 3706, 1_000_000, 4
_LARGE = 2**16


def random_interactions() -> RatingSource:
    """Returns random choices without any structure."""
    generator = np.random.default_rng(1)
    keys = np.unique(generator.integers(0, _USERS * _ITEMS, _CHOICES))
    return RatingSource(
        name="made",
        user_ids=np.arange(_USERS),
        item_ids=np.arange(_ITEMS),
        users=(keys // _ITEMS).astype(np.int32),
        items=(keys % _ITEMS).astype(np.int32),
        held_out=np.zeros(_USERS, np.int32),
    )


def _sampler(source: RatingSource, batch: int, pairs: int) -> Callable[[], int]:
    dataset = train_pairs(source, num_negatives=_NEGATIVES, global_batch_size=batch, seed=1)
    options = tf.data.Options()
    options.autotune.enabled = False  # As in the runner.
    iterator = iter(dataset.with_options(options))
    steps = pairs // batch

    @tf.function
    def drain() -> tf.Tensor:
        last = tf.constant(0)
        for _ in tf.range(steps):
            features, _ = next(iterator)
            last = features["item"][0]
        return last

    def run() -> int:
        drain().numpy()
        return steps * batch

    return run


def _rejection(source: RatingSource, pairs: int) -> Callable[[], int]:
    generator = np.random.default_rng(1)
    keys = source.users.astype(np.int64) * _ITEMS + source.items

    def batches() -> Iterator[np.ndarray]:
        while True:
            order = generator.permutation(source.size * (1 + _NEGATIVES))
            for first in range(0, len(order) - _LARGE + 1, _LARGE):
                choices, slots = np.divmod(order[first : first + _LARGE], 1 + _NEGATIVES)
                users, items = source.users[choices], source.items[choices].copy()
                wrong = np.flatnonzero(slots)
                while len(wrong):
                    items[wrong] = generator.integers(0, _ITEMS, len(wrong), np.int32)
                    wanted = users[wrong] * np.int64(_ITEMS) + items[wrong]
                    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                    wrong = wrong[keys[places] == wanted]
                yield items

    made, count = batches(), pairs // _LARGE

    def run() -> int:
        for _ in itertools.islice(made, count):
            pass
        return count * _LARGE

    return run


def _trainer(batch: int, steps: int, folder: Path) -> Callable[[], int]:
    synthetic = f"synthetic.num_examples={_CHOICES}"
    changes = (
        f"task.train_data.{synthetic},task.validation_data.{synthetic},"
        f"task.train_data.global_batch_size={batch},trainer.train_epochs=0,"
        "trainer.train_steps=1000000,trainer.checkpoint_interval=1000000"
    )
    files = ("configs/data/synthetic.yaml",)
    request = Request(experiment="ncf_movielens", config_files=files, params_overrides=(changes,))
    config = resolve(request).config
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        task = TASKS.get("recommendation").load()(config.task)
    session = build_run(
        config, task, strategy, folder, trains=True, evaluates=False, asynchronous=False
    )
    controller = build_controller(session)

    def run() -> int:
        with quiet_orbit_scope(), strategy.scope():
            controller.train(session.step + steps, checkpoint_at_completion=False)
        return steps * batch

    return run


def measure(rounds: int = 7) -> list[Figure]:
    """Returns the figures relative to rejection sampling."""
    source = random_interactions()
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            "rejection sampling in NumPy, batch 65,536": _rejection(source, 3_000_000),
            "sampler, batch 65,536": _sampler(source, _LARGE, 3_000_000),
            "sampler, batch 256": _sampler(source, 256, 1_000_000),
            "training, batch 256": _trainer(256, 1000, Path(folder) / "small"),
            "training, batch 16,384": _trainer(16_384, 30, Path(folder) / "large"),
        }
        first = next(iter(contenders))
        return alternate(contenders, baseline=first, rounds=rounds)
