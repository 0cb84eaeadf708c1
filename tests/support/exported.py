"""Queries exported models in a process that imports nothing but tensorflow, and its text ops."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Directory of a SavedModel, name of a signature, its arguments.
Question = tuple[Path, str, Mapping[str, Any]]
OWN = ("orbit_runner", "orbit", "official", "tf_keras", "sentencepiece")

_SCRIPT = """
import tensorflow as tf
for folder, name, values in request:
    if b"TFText>" in open(folder + "/saved_model.pb", "rb").read():
        import tensorflow_text
    loaded = tf.saved_model.load(folder)
    outputs = loaded.signatures[name](**{key: tf.constant(value) for key, value in values.items()})
    answers.append({key: value.numpy() for key, value in outputs.items()})
"""


def ask_elsewhere(questions: Sequence[Question], folder: Path) -> list[dict[str, np.ndarray]]:
    """Loads exported models in one other process, and calls their signatures.

    Args:
        questions: Models, signatures and arguments of the calls.
        folder: Directory for the files with questions and answers.

    Returns:
        The outputs of each call by name.
    """
    request = [(str(path), name, dict(values)) for path, name, values in questions]
    answers, modules = run_elsewhere(_SCRIPT, request, folder)
    assert [name for name in OWN if name in modules] == []
    return answers


def run_elsewhere(script: str, request: object, folder: Path) -> tuple[list[Any], set[str]]:
    """Runs Python code, which adds to the list `answers`, in a process without this package.

    Args:
        script: The code; it has `request`.
        request: What the code is to know.
        folder: Directory for the files with request and answers.

    Returns:
        The answers, and the modules that the process imported.
    """
    asked, answered = folder / "asked.pickle", folder / "answered.pickle"
    asked.write_bytes(pickle.dumps(request))
    code = (
        "import pickle, sys\n"
        "request, answers = pickle.load(open(sys.argv[1], 'rb')), []\n"
        f"{script}\n"
        "pickle.dump((answers, {*sys.modules}), open(sys.argv[2], 'wb'))\n"
    )
    command = [sys.executable, "-I", "-c", code, str(asked), str(answered)]
    # A model must not depend on which Keras TensorFlow uses; runs in this process have set it.
    env = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=env
    )
    assert completed.returncode == 0, completed.stderr
    answers, modules = pickle.loads(answered.read_bytes())
    return answers, modules
