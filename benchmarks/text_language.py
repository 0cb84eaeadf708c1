"""Compares `text_language` with scikit-learn's models, on the same words of the same sentences.

Needs the files of Multi30k in data/multi30k: `runner data get multi30k`. The numbers of this runner
are those of the last step, not of the best checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.small_tables import last_evaluation

_EXPERIMENT = "text_language"
_FEW = (
    "--task.split.fractions={few: 0.002, rest: 0.998}",
    "--task.train_data.split=few",
    "--task.validation_data.split=rest",
    "--trainer.train_epochs=0",
    "--trainer.train_steps=300",
    "--trainer.optimizer_config.learning_rate.cosine.decay_steps=300",
)
_CASES: dict[str, tuple[str, ...]] = {
    "whole sentences": (),
    "the first word": ("--task.text.max_length=1",),
    "whole sentences, few to learn from": _FEW,
    "the first word, few to learn from": ("--task.text.max_length=1", *_FEW),
}
# Gradient boosting takes no sparse matrices.
_MOST_WORDS = 200


def _counts(flags: tuple[str, ...]) -> dict[str, tuple[Any, np.ndarray]]:
    """Returns the number of times each word is in each sentence, sparse, and the classes."""
    from scipy import sparse

    from orbit_runner.config.resolve import Request, resolve
    from orbit_runner.tasks.text_classification.task import TextClassificationTask

    changes = tuple(flag.removeprefix("--") for flag in flags)
    config = resolve(Request(experiment=_EXPERIMENT, params_overrides=changes)).config.task
    task = TextClassificationTask(config)
    found = {}
    for section in ("train_data", "validation_data"):
        arrays = task.arrays(getattr(config, section)).arrays
        tokens = arrays["features"]
        rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
        shape = (len(tokens), task.vocabulary.size)
        counts = sparse.csr_matrix((np.ones(tokens.size), (rows, tokens.ravel())), shape=shape)
        found[section] = counts[:, 1:], arrays["targets"]  # Without padding.
    return found


def _train_sklearn(flags: tuple[str, ...]) -> dict[str, float]:
    from sklearn import ensemble, linear_model

    data = _counts(flags)
    (train, labels), (validation, expected) = data["train_data"], data["validation_data"]
    linear = linear_model.LogisticRegression(max_iter=1000).fit(train, labels)
    boosting = ensemble.HistGradientBoostingClassifier(random_state=0)
    boosting.fit(train[:, :_MOST_WORDS].toarray(), labels)
    frequent = validation[:, :_MOST_WORDS].toarray()
    return {
        "logistic regression": float(np.mean(linear.predict(validation) == expected)),
        "gradient boosting": float(np.mean(boosting.predict(frequent) == expected)),
        "sentences": float(train.shape[0]),
    }


def report() -> str:
    """Trains all models on all cases, and returns a table of accuracies."""
    lines = ["### English or German?", ""]
    lines += ["| | training sentences | model | accuracy |", "|---|---|---|---|"]
    for case, flags in _CASES.items():
        others = _train_sklearn(flags)
        sentences = int(others.pop("sentences"))
        found = {
            "this runner": last_evaluation(_EXPERIMENT, *flags)["accuracy"],
            **others,
        }
        lines += [
            f"| {case} | {sentences:,} | {model} | {accuracy:.4f} |"
            for model, accuracy in found.items()
        ]
    return "\n".join([*lines, ""])
