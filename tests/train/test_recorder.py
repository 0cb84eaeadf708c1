"""Records within a loop have the same values and weights as if the loop had ended there."""

import pytest

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.train.trainer import Trainer
from tests.support.digits import cnn_config, digits_config
from tests.support.toy import repeatable_records, run

# At step 130 of a cosine schedule, a loop with outputs once differed from one without.
_COSINE = {
    "trainer__optimizer_config__learning_rate__type": "cosine",
    "trainer__optimizer_config__learning_rate__cosine__initial_learning_rate": 0.002,
    "trainer__optimizer_config__learning_rate__cosine__decay_steps": 900,
}
_CASES = {
    "batches in the graph": {"task__train_data__on_device": True},
    "a pipeline": {"task__train_data__on_device": False},
    "XLA": {"runtime__enable_xla": True},
}


def _config(**changes):
    make = digits_config if changes.get("runtime__enable_xla") else cnn_config
    return make(
        **{
            "trainer__train_steps": 130,
            "trainer__steps_per_loop": 130,
            "trainer__summary_interval": 20,
            "trainer__validation_interval": 130,
            "trainer__checkpoint_interval": 130,
            **_COSINE,
            **changes,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        ("batches in the graph", "mirrored2"),
        ("a pipeline", "one_device"),
        ("XLA", "one_device"),
    ],
)
def test_records_and_weights_do_not_depend_on_where_loops_end(
    case, strategy, tmp_path, monkeypatch
):
    config = _config(**_CASES[case])
    model, _ = run(config, tmp_path / "long", "train", strategy=strategy)
    monkeypatch.setattr(Trainer, "_build_recorder", lambda self: None)
    expected, _ = run(config, tmp_path / "short", "train", strategy=strategy)
    whole = repeatable_records(tmp_path / "long", "train")
    assert [record["step"] for record in whole] == [*range(20, 121, 20), 130]
    assert whole == repeatable_records(tmp_path / "short", "train")
    assert weights_fingerprint(model) == weights_fingerprint(expected)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"trainer__recovery_max_trials": 1}])
def test_loop_continues_past_the_end_of_a_record_unless_recovery_is_enabled(
    changes, tmp_path, monkeypatch
):
    loops = []
    train = Trainer.train

    def counted(self, num_steps):
        loops.append(int(num_steps))
        return train(self, num_steps)

    monkeypatch.setattr(Trainer, "train", counted)
    run(_config(**changes), tmp_path, "train")
    assert sum(loops) == 130
    assert (max(loops) > 20) == (not changes)
