"""What the recommendation task reads: the choices of users. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.recommendation.config import SECTIONS, RatingTrainData
from orbit_runner.tasks.recommendation.examples import RatingExamples
from orbit_runner.tasks.recommendation.sources import (
    TrainedRatings,
    load_source,
    mismatch_problems,
    source_files,
    trained_ratings,
)


class RecommendationData(TaskData):
    """The choices of users, of which the latest of each user is held out from training."""

    excludes_examples = True

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files of the datasets."""
        sources = {}
        for section in SECTIONS:
            try:
                sources[section] = load_source(getattr(self.config, section))
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)
        if len(sources) == len(SECTIONS):
            train, validation = (sources[section] for section in SECTIONS)
            count = self.config.validation_data.num_eval_negatives
            yield from mismatch_problems(train, validation, count)

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections."""
        return {name: source_files(getattr(self.config, name)) for name in SECTIONS}

    def file_reading(self) -> str:
        """Returns that each worker reads all files at the start."""
        return "memory"

    def shared_examples(self) -> None:
        """Returns None: the latest rating of each user is held out from training."""

    def training_examples(self, section: RatingTrainData, model_dir: str | None) -> RatingExamples:
        """Returns which examples are in the batch of each training step."""
        return RatingExamples(section)

    def learn(self, assets: Assets) -> TrainedRatings:
        """Returns the users, items and choices that the run is trained on."""
        return trained_ratings(self.config.train_data, assets)
