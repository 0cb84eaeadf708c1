"""Settings of the task: contradictions, files that are missing or do not fit, the schedule."""

import numpy as np
import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.translation.data import load_vocabulary
from orbit_runner.tasks.translation.task import TranslationTask
from tests.support.problems import check, raises
from tests.support.translations import translation_config, write_set


@pytest.fixture
def folder(tmp_path, own_cache):
    return write_set(tmp_path / "set")


@pytest.mark.parametrize(
    ("content", "code", "setting"),
    [
        (None, "missing-file", "split"),
        (b"eins\nzwei\n", "data-mismatch", "input_path"),
    ],
)
def test_preflight_reports_bad_text_files(folder, content, code, setting):
    (folder / "train.de.gz").unlink()
    if content is not None:
        (folder / "train.de").write_bytes(content)
    problems = translation_config(folder).data.problems()
    check(problems, (code, f"train_data.{setting}"))


@pytest.mark.parametrize("content", [None, b"no model"])
def test_preflight_reports_an_unusable_vocabulary_file(folder, content):
    path = folder / "words.model"
    if content is not None:
        path.write_bytes(content)
    problems = translation_config(folder, task__sentencepiece_model_path=str(path)).data.problems()
    assert {problem.path for problem in problems} == {"sentencepiece_model_path"}


def test_vocab_size_too_large_for_the_text_is_rejected(folder):
    config = translation_config(folder, task__vocab_size=4000)
    with raises("out-of-range", "task.vocab_size"):
        TranslationTask(config.task).build_model()


def test_vocabulary_is_read_from_the_configured_file(folder, tmp_path):
    config = translation_config(folder).task
    assets = Assets(tmp_path)
    load_vocabulary(config.replace(vocab_size=36), assets)
    assets.write()
    path = tmp_path / "assets" / "vocabulary.model"
    with_path = config.replace(sentencepiece_model_path=str(path))
    assert load_vocabulary(with_path, Assets(tmp_path / "elsewhere")).size == 36


def _schedule(experiment, *fragments):
    from official.modeling import optimization

    config = resolve(Request(experiment=experiment, config_files=fragments)).config
    factory = optimization.OptimizerFactory(config.trainer.optimizer_config)
    return factory.build_learning_rate()


# Vaswani et al. 2017, equation 3; the old official Transformer had twice that.
@pytest.mark.parametrize(
    ("name", "width", "warmup", "factor"),
    [
        ("", 512, 4000, 1),
        ("tiny", 32, 16000, 2),
        ("big", 1024, 16000, 2),
        ("base_multi_gpu", 512, 8000, 2),
    ],
)
def test_learning_rate_schedule_matches_the_paper(name, width, warmup, factor):
    fragments = [f"configs/model/transformer_{name}.yaml"] if name else []
    rate = _schedule("transformer_wmt_ende", *fragments)
    for step in (1, warmup // 2, warmup, warmup + 1, 100_000):
        paper = factor * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        np.testing.assert_allclose(float(rate(step)), paper, rtol=1e-5)
