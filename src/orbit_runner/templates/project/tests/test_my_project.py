"""Trains for a few seconds: does the task learn, and are its runs exact?

`make test` runs it in the directory of the project, because paths in the config are
relative to it.
"""

import hashlib
import os
import tempfile
import unittest

# Suppresses the log of TensorFlow. Must be set before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from orbit_runner import RunnerError, load_config, prepare, run_experiment

CONFIG = load_config("my_project")


def train(run, **arguments):
    """Trains in a directory. Returns the SHA-256 of the weights, and the metrics."""
    strategy, task = prepare(CONFIG, run)
    mode = "train_and_eval"
    model, metrics = run_experiment(strategy, task, mode, CONFIG, run, **arguments)
    values = b"".join(array.tobytes() for array in model.get_weights())
    return hashlib.sha256(values).hexdigest(), metrics


class MyProjectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.weights, cls.metrics = train(f"{cls.folder}/first")

    def test_it_learns(self):
        # Guessing gives 0.33.
        self.assertGreater(self.metrics["accuracy"], 0.9)

    def test_a_second_run_gives_the_same_weights(self):
        weights, _ = train(f"{self.folder}/second")

        self.assertEqual(weights, self.weights)

    def test_a_resumed_run_gives_the_same_weights(self):
        # Step 101 is in the middle of an epoch, and no step at which the config saves.
        with self.assertRaisesRegex(RunnerError, "stopped at step 101"):
            train(f"{self.folder}/resumed", stop_at_step=101)

        weights, _ = train(f"{self.folder}/resumed")

        self.assertEqual(weights, self.weights)


if __name__ == "__main__":
    unittest.main()
