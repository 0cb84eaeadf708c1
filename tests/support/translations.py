"""A small language and its translation word by word, in text files as they are published."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.configs import SHORT_RUN, config_of

WORDS = dict(
    zip(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
        ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"],
        strict=True,
    )
)

_STACK = {"num_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def sentences(number: int, seed: int, most: int = 6) -> list[tuple[str, str]]:
    """Makes pairs of sentences of 1 to `most` words."""
    generator = np.random.default_rng(seed)
    pairs = []
    for _ in range(number):
        words = generator.choice([*WORDS], size=generator.integers(1, most + 1))
        pairs.append((" ".join(words), " ".join(WORDS[word] for word in words)))
    return pairs


def write_pairs(folder: Path, split: str, pairs: list[tuple[str, str]], packed: bool) -> None:
    for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in side).encode()
        if packed:
            (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(text))
        else:
            (folder / f"{split}.{language}").write_bytes(text)


def write_set(folder: Path, train: int = 200, validation: int = 21) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder, "train", sentences(train, 0), packed=True)
    write_pairs(folder, "validation", sentences(validation, 1), packed=False)
    return folder


def translation_config(folder: Path | str, **changes: Any) -> ExperimentConfig:
    """Returns the config of a tiny Transformer on that set; `__` in a name stands for a dot."""
    return config_of({**_BASE, **_data(folder)}, **changes)


def _data(folder: Path | str) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for section in ("train_data", "validation_data"):
        data |= {
            f"task.{section}.source": "parallel_text",
            f"task.{section}.data_dir": str(folder),
            f"task.{section}.src_lang": "en",
            f"task.{section}.tgt_lang": "de",
            f"task.{section}.max_seq_length": 32,
        }
    return data


_BASE: dict[str, Any] = {
    "task.name": "translation",
    "task.vocab_size": 40,
    "task.model.name": "transformer",
    "task.model.preset": "tiny",
    "task.model.embedding_width": 16,
    **{f"task.model.encoder.{name}": value for name, value in _STACK.items()},
    **{f"task.model.decoder.{name}": value for name, value in _STACK.items()},
    "task.model.extra_decode_length": 6,
    "task.model.beam_size": 2,
    "task.train_data.batch_tokens": 256,
    "task.validation_data.global_batch_size": 8,
    **SHORT_RUN,
    "trainer.train_steps": 4,
    "trainer.validation_interval": 4,
    "trainer.checkpoint_interval": 2,
    "trainer.summary_interval": 4,
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.003,
}
