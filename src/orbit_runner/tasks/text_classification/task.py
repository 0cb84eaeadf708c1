"""Classification of texts: a table with a text feature and a target, and a registered network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.text.tokenizer.words import WordTokenizer
from orbit_runner.errors import RunnerError, shorten
from orbit_runner.registry import TEXT_CLASSIFIERS
from orbit_runner.tasks.serving import (
    Prediction,
    Predictor,
    Serving,
    best_classes,
    class_names_signature,
    is_file,
    texts_of,
)
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.networks import TOKENS
from orbit_runner.tasks.tabular.preprocessing import TextFit
from orbit_runner.tasks.tabular.rows import Row, file_rows, text_rows
from orbit_runner.tasks.tabular.serving import TablePredictor
from orbit_runner.tasks.tabular.task import TabularTask
from orbit_runner.tasks.text_classification.config import TextClassificationConfig
from orbit_runner.tasks.translation.serving import FILE_PATTERN

TEXT, NAMES = "text", "class_names"
_TOP_K = 3
_MAX_TEXT_WIDTH = 60


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
        return text_serving(model, self.vocabulary, self.task_config.label_column, self.class_names)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor that labels texts."""
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


def text_serving(
    model: tf_keras.Model, fitted: TextFit, label: str, names: Sequence[str]
) -> Serving:
    """Returns the signatures `text` (the default) and `class_names`.

    `text` maps `text`, string [batch], to `logits` and `probabilities`, float32 [batch, classes].
    `class_names` takes nothing, and returns `names`, string [classes]. `label` is the column of
    the classes, whose names are `names`.
    """
    tokenizer = WordTokenizer(fitted.words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens = tokenizer.encode(text, fitted.max_length)
        logits = model({TOKENS: tokens}, training=False)[label]
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    return Serving(
        {TEXT: text, NAMES: class_names_signature(names)},
        default=TEXT,
        resources=[tokenizer],
        labels={"class": list(names)},
    )


class TextPredictor(TablePredictor):
    """Labels texts with the signatures of a model in memory or of an exported one.

    `column` is the column of texts in CSV files, which `data` describes, and in JSON lines. `top_k`
    is the number of labels per text.
    """

    def __init__(
        self,
        signatures: Mapping[str, tf.types.experimental.Callable],
        column: str,
        data: TableDataConfig,
        top_k: int | None = None,
    ) -> None:
        self._classify = signatures[TEXT]
        self._names = texts_of(signatures[NAMES]()["names"])
        self._column = column
        self.readers = [(column, lambda name, text: text)]
        self._data = data
        self._top_k = top_k or _TOP_K

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Row]:
        """Yields texts, in order.

        Arguments are sentences, tables as for `RowPredictor`, other files, whose lines are texts,
        or `-` for standard input: JSON objects, one per line, or texts if the first line is not an
        object. Raises `RunnerError` if an argument looks like a file that does not exist.
        """
        for argument in arguments or ["-"]:
            if argument == "-":
                yield from text_rows("standard input", lines, self._data, text_column=self._column)
            elif is_file(argument):
                yield from file_rows(argument, self._data, text_column=self._column)
            elif FILE_PATTERN.fullmatch(argument):
                raise RunnerError(f"file not found: {argument}", code="missing-file")
            else:
                yield Row("", {self._column: argument})

    def _predict_rows(self, rows: Sequence[Sequence[str]]) -> Sequence[np.ndarray]:
        texts = tf.constant([text for (text,) in rows])
        probabilities: np.ndarray = self._classify(text=texts)["probabilities"].numpy()
        return list(probabilities)

    def _prediction(self, row: Row, values: Sequence[str], answer: np.ndarray) -> Prediction:
        if not np.isfinite(answer).all():
            return row.error_prediction("the prediction is not finite")
        best = best_classes(self._names, answer, self._top_k)
        labels = "  ".join(f"{x['label']} {x['probability']:.4f}" for x in best)
        place = {"row": row.where} if row.where else {}
        return Prediction(
            f"{labels}  {shorten(values[0], _MAX_TEXT_WIDTH)}".rstrip(),
            place | {"text": values[0], "predictions": best},
        )
