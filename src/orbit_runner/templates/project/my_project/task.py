"""The task: the network, its batches, the loss and the metrics."""

import tensorflow as tf
import tf_keras
from orbit_runner import SparseAccuracy, Task, eval_dataset, train_dataset

from .data import CLASSES, FEATURES, read_rows


class MyProjectTask(Task):
    """Predicts the species of a flower. `self.task_config` is a `MyProjectConfig`."""

    def build_model(self):
        inputs = tf_keras.Input([len(FEATURES)], name="features")
        hidden = tf_keras.layers.Dense(
            self.task_config.hidden_units, activation="relu", name="hidden"
        )(inputs)
        # No softmax, because the loss expects logits.
        logits = tf_keras.layers.Dense(len(CLASSES), name="logits")(hidden)
        return tf_keras.Model(inputs, logits)

    def build_inputs(self, params, input_context=None, start_step=0):
        """Returns the batches of one section, train_data or validation_data."""
        if not params.is_training:
            # Contains each row once. The weight is 0 for rows that only fill up the
            # last batch; an evaluation leaves them out.
            return eval_dataset(
                self._rows(params),
                global_batch_size=params.global_batch_size,
                input_context=input_context,
                element=lambda batch, weight: (
                    batch["features"],
                    batch["label"],
                    weight,
                ),
            )
        # The rows of a step depend only on the seed and the step. This is why a resumed
        # run gets the weights of a run that was not stopped.
        return train_dataset(
            self._rows(params),
            global_batch_size=params.global_batch_size,
            seed=params.seed or 0,
            start_step=start_step,
            input_context=input_context,
            element=lambda batch: (batch["features"], batch["label"]),
        )

    def num_examples(self, params):
        """Returns the number of rows, from which train_epochs computes the steps."""
        return self._rows(params).size

    def example_losses(self, labels, model_outputs):
        """Returns the loss of each row; the runner averages them."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)

    def build_metrics(self, training=True):
        return [SparseAccuracy("accuracy")]

    def _rows(self, params):
        if params.is_training:
            return read_rows(self.task_config.train_file)
        return read_rows(self.task_config.validation_file)
