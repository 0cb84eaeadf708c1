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

_SCRIPT = f"""
import pickle, sys
import tensorflow as tf
answers = []
for folder, name, values in pickle.load(open(sys.argv[1], "rb")):
    if b"TFText>" in open(folder + "/saved_model.pb", "rb").read():
        import tensorflow_text
    loaded = tf.saved_model.load(folder)
    found = loaded.signatures[name](**{{key: tf.constant(value) for key, value in values.items()}})
    answers.append({{key: value.numpy() for key, value in found.items()}})
imported = [name for name in {OWN!r} if name in sys.modules]
pickle.dump((answers, imported), open(sys.argv[2], "wb"))
"""


def ask_elsewhere(questions: Sequence[Question], folder: Path) -> list[dict[str, np.ndarray]]:
    """Loads exported models in one other process, and calls their signatures.

    Args:
        questions: Models, signatures and arguments of the calls.
        folder: Directory for the files with questions and answers.

    Returns:
        The outputs of each call by name.
    """
    request_file, answered = folder / "asked.pickle", folder / "answered.pickle"
    request_file.write_bytes(
        pickle.dumps([(str(path), name, dict(v)) for path, name, v in questions])
    )
    command = [sys.executable, "-I", "-c", _SCRIPT, str(request_file), str(answered)]
    # A model must not depend on which Keras TensorFlow uses; runs in this process have set it.
    env = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=env
    )
    assert completed.returncode == 0, completed.stderr
    answers, imported = pickle.loads(answered.read_bytes())
    assert imported == []
    return list(answers)
