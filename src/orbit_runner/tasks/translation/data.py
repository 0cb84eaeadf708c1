"""What the translation task reads: pairs of sentences, and a vocabulary. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.shared_examples import SharedExamples
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.determinism.numerics_record import SENTENCEPIECE
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.translation.config import TranslationDataConfig
from orbit_runner.tasks.translation.examples import PairExamples
from orbit_runner.tasks.translation.sources import (
    check_files,
    load_vocabulary,
    needs_vocabulary,
    shared_pairs,
    text_files,
)

# The settings that errors of datasets name, below `task`.
_TASK_SETTINGS = {
    "vocabulary": "sentencepiece_model_path",
    "vocab_size": "vocab_size",
    "vocab_character_coverage": "vocab_character_coverage",
}


class TranslationData(TaskData):
    """Pairs of sentences, and the vocabulary of both languages."""

    excludes_examples = True

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files of the datasets."""
        for section in ("train_data", "validation_data"):
            try:
                check_files(self.config, section)
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections and of the vocabulary."""
        return text_files(self.config)

    def file_reading(self) -> str:
        """Returns that each worker reads all files at the start."""
        return "memory"

    def packages(self) -> Sequence[str]:
        """Returns SentencePiece unless all data are ids."""
        return (SENTENCEPIECE,) if needs_vocabulary(self.config) else ()

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation pairs that are also training pairs, or None."""
        data = self.config.train_data
        # The rows in the files, which also have the pairs that are too long.
        rows = PairExamples(self.config, data, None).excluded_rows if data.exclude else None
        return shared_pairs(self.config, rows)

    def training_examples(
        self, section: TranslationDataConfig, model_dir: str | None
    ) -> PairExamples:
        """Returns which examples are in the batch of each training step."""
        return PairExamples(self.config, section, model_dir)

    def learn(self, assets: Assets) -> Vocabulary | None:
        """Returns the subword vocabulary, or None if all data are ids."""
        return load_vocabulary(self.config, assets)

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the path, below `task`, of the setting that an error is about."""
        name = "max_seq_length" if error.field == "max_length" else error.field
        return _TASK_SETTINGS.get(name) or f"{section}.{name}"
