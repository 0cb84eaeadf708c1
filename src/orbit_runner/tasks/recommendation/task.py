"""Items for users: cross entropy on pairs that were chosen or not, and the rank of one held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.step_batches import Chunks
from orbit_runner.registry import RATING_MODELS
from orbit_runner.tasks.base import EXAMPLES, Task
from orbit_runner.tasks.recommendation.config import (
    RatingEvalData,
    RatingTrainData,
    RecommendationConfig,
)
from orbit_runner.tasks.recommendation.inputs import chunks, eval_inputs, train_inputs
from orbit_runner.tasks.recommendation.metrics import HitRatio, Ndcg
from orbit_runner.tasks.recommendation.predictor import UserPredictor
from orbit_runner.tasks.recommendation.ranking import ranks_and_losses
from orbit_runner.tasks.recommendation.serving import make_serving
from orbit_runner.tasks.recommendation.sources import load_source
from orbit_runner.tasks.serving import Predictor, Serving


class RecommendationTask(Task):
    """Items for users, from what each chose before."""

    task_config: RecommendationConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network that `model.name` names, for the users and items of the data set.

        Returns:
            A model from `user` and `item`, int32 [batch], to float32 logits [batch].
        """
        source = load_source(self.task_config.train_data)
        options = self.task_config.model.as_dict()
        network = RATING_MODELS.get(options.pop("name")).load()
        options["layer_sizes"] = options.pop("layers")
        return network(num_users=source.num_users, num_items=source.num_items, **options)

    def build_inputs(
        self,
        params: RatingTrainData | RatingEvalData,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Builds the input pipeline of one section.

        Args:
            params: The section.
            input_context: Which slice of each global batch this pipeline makes.
            start_step: The first training step to make a batch for.

        Returns:
            A data set of `({user, item}, label)` that never ends, for training; of
            `({user, item}, there, weight)`, each user once, for evaluation.
        """
        if isinstance(params, RatingTrainData):
            return train_inputs(params, input_context, start_step)
        return eval_inputs(params, input_context)

    def chunks(self, params: RatingTrainData | RatingEvalData, replicas: int = 1) -> Chunks:
        """Returns what gives the batches of a section by their steps.

        Args:
            params: The section.
            replicas: Replicas in sync.
        """
        return chunks(params, replicas)

    def num_examples(self, params: RatingTrainData | RatingEvalData) -> int:
        """Returns the size of a section's data set: pairs to train on, or users to evaluate."""
        source = load_source(params)
        if isinstance(params, RatingTrainData):
            return source.size * (1 + params.num_negatives)
        return source.num_users

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross entropy of each pair.

        Args:
            labels: float32 [batch], 1 for a choice, else 0.
            model_outputs: Logits, float32 [batch].

        Returns:
            float32 [batch], in nats.
        """
        return tf.nn.sigmoid_cross_entropy_with_logits(labels, model_outputs)

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns HR@k and NDCG@k; none for training, whose pairs have no ranks.

        Args:
            training: Whether they are for training.
        """
        k = self.task_config.top_k
        return [] if training else [HitRatio(k), Ndcg(k)]

    def validation_step(
        self, inputs: Any, model: tf_keras.Model, metrics: Any = None
    ) -> dict[str, tf.Tensor]:
        """Ranks the held-out item of each user of a batch, on one replica.

        Args:
            inputs: `({user, item}, there, weight)`.
            model: The model.
            metrics: What `build_metrics` made.

        Returns:
            `loss`, the mean over the batch's users, and `examples`, their number; both float32
            scalars.
        """
        features, there, weights = inputs
        ahead, losses = ranks_and_losses(
            lambda user, item: self.inference_step({"user": user, "item": item}, model),
            features["user"],
            features["item"],
            there,
            num_negatives=self.task_config.train_data.num_negatives,
        )
        for metric in metrics or []:
            metric.update_state(ahead, weights)
        count = tf.reduce_sum(weights)
        loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), count)
        return {self.loss: tf.add_n([loss, *model.losses]), EXAMPLES: count}

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signatures `pairs` and `top_k`.

        Args:
            model: The model, its weights restored.
        """
        return make_serving(model, load_source(self.task_config.train_data))

    def predictor(self, signatures: Mapping[str, Any], *, top_k: int | None = None) -> Predictor:
        """Returns what answers with the items that suit a user best.

        Args:
            signatures: Those of `serving`.
            top_k: Items a user; `top_k` of the task where None.
        """
        return UserPredictor(signatures["top_k"], top_k or self.task_config.top_k)
