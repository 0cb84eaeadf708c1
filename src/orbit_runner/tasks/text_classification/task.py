"""Classification of texts: a table with a text feature and a target, and a registered network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.registry import TEXT_CLASSIFIERS
from orbit_runner.tasks.serving import Predictor, Serving
from orbit_runner.tasks.tabular.networks import TOKENS
from orbit_runner.tasks.tabular.task import TabularTask
from orbit_runner.tasks.tabular.texts import TextFit
from orbit_runner.tasks.text_classification.config import TextClassificationConfig


class TextClassificationTask(TabularTask):
    """Classification of texts with one label per text."""

    task_config: TextClassificationConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name`, and writes the fitted values to the run directory.

        It maps `tokens`, int32 [batch, text.max_length], to the logits of the label, float32
        [batch, classes].
        """
        options = self.task_config.model.as_dict()
        network = TEXT_CLASSIFIERS.get(options.pop("name")).load()(
            vocab_size=self.vocabulary.size,
            length=self.vocabulary.max_length,
            num_classes=len(self.class_names),
            **options,
        )
        outputs = {self.task_config.label_column: network.output}
        return tf_keras.Model({TOKENS: network.input}, outputs, name=network.name)

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `text`, which takes texts, and that of the class names."""
        from orbit_runner.tasks.text_classification.serving import text_serving

        return text_serving(model, self.vocabulary, self.task_config.label_column, self.class_names)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor that labels texts."""
        from orbit_runner.tasks.text_classification.serving import TextPredictor

        config = self.task_config
        return TextPredictor(signatures, config.text.column, config.train_data, top_k)

    @property
    def vocabulary(self) -> TextFit:
        """The tokens that were fitted on the training texts."""
        return self.fitted.texts[self.task_config.text.column]

    @property
    def class_names(self) -> Sequence[str]:
        """The classes of the training texts."""
        return self.fitted.classes[self.task_config.label_column]
