"""Recommendation: the cross entropy of pairs, and the rank of each user's held-out item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.ratings.step_batches import pair_chunks, user_chunks
from orbit_runner.registry import RATING_MODELS
from orbit_runner.tasks.base import EXAMPLES, Task, section_of
from orbit_runner.tasks.recommendation.config import RecommendationConfig
from orbit_runner.tasks.recommendation.data import TrainedRatings, load_source
from orbit_runner.tasks.recommendation.ranking import HitRatio, Ndcg, ranks_and_losses
from orbit_runner.tasks.recommendation.serving import UserPredictor, make_serving
from orbit_runner.tasks.serving import Predictor, Serving

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors


class RecommendationTask(Task):
    """Recommendation of items to users, based on their past choices."""

    task_config: RecommendationConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name` for the users and items of the dataset.

        It maps `user` and `item`, int32 [batch], to float32 logits [batch].
        """
        ratings = self.ratings
        config = self.task_config.model
        network = RATING_MODELS.get(config.name).load()
        return network(config, num_users=len(ratings.user_ids), num_items=len(ratings.item_ids))

    def chunks(self, params: Any, replicas: int = 1) -> Chunks:
        """Returns the batches of a section by step.

        Those of training are `({user, item}, label)`. Those of an evaluation are `({user, item},
        mask, weight)`, each user once; see `Candidates` for the items of a user.
        """
        source = load_source(params)
        self.ratings.check(source, section_of(params))
        size, seed = params.global_batch_size, params.seed or 0
        if params.is_training:
            return pair_chunks(
                source,
                num_negatives=params.num_negatives,
                global_batch_size=size,
                seed=seed,
                replicas=replicas,
                shuffle=params.shuffle_buffer_size > 1,
                excluded=self.excluded_examples(params),
            )
        return user_chunks(
            source,
            num_negatives=params.num_eval_negatives,
            global_batch_size=size,
            seed=seed,
            replicas=replicas,
            drop_remainder=params.drop_remainder,
        )

    def num_examples(self, params: Any) -> int:
        """Returns the number of pairs for training, or of users for evaluation."""
        source = load_source(params)
        if params.is_training:
            total = source.size * (1 + params.num_negatives)
            return total - len(self.excluded_examples(params))
        return source.num_users

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross entropy of each pair in nats, float32 [batch].

        Labels are float32 [batch], 1 for a choice and otherwise 0. `model_outputs` are logits,
        float32 [batch].
        """
        return tf.nn.sigmoid_cross_entropy_with_logits(labels, model_outputs)

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns HR@k and NDCG@k, or no metrics for training, whose pairs have no ranks."""
        k = self.task_config.top_k
        return [] if training else [HitRatio(k), Ndcg(k)]

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Ranks the held-out item of each user of a batch, on one replica.

        `inputs` are `({user, item}, mask, weight)`. Returns `loss`, the mean over the batch's
        users, and `examples`, their number; both float32 scalars.
        """
        features, mask, weights = inputs
        ahead, losses = ranks_and_losses(
            lambda user, item: self.inference_step({"user": user, "item": item}, model),
            features["user"],
            features["item"],
            mask,
            num_negatives=self.task_config.train_data.num_negatives,
        )
        for metric in metrics or []:
            metric.update_state(ahead, weights)
        count = tf.reduce_sum(weights)
        loss = tf.math.divide_no_nan(tf.reduce_sum(losses * weights), count)
        return {self.loss: tf.add_n([loss, *model.losses]), EXAMPLES: count}

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signatures `pairs` and `top_k`."""
        return make_serving(model, self.ratings)

    @property
    def ratings(self) -> TrainedRatings:
        """The users, items and choices that the run is trained on."""
        ratings: TrainedRatings = self.learned
        return ratings

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor of the best items for users.

        `top_k` is the number of items per user; None for the task's `top_k`.
        """
        return UserPredictor(signatures["top_k"], top_k or self.task_config.top_k)
