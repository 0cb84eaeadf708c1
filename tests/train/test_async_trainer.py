"""Training with parameter servers: real workers, servers and chiefs, and what they leave behind."""

import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import CheckpointContent, weights_fingerprint
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.registry import TASKS
from tests.support.digits import digits_config
from tests.support.served import Chief, Servers, content
from tests.support.toy import make_strategy, run, session_of

pytestmark = pytest.mark.slow

STEPS = 60
EVERYTHING = {
    "trainer__optimizer_config__ema__average_decay": 0.9,
    "trainer__gradient_accumulation_steps": 2,
    "task__model__dropout_rate": 0.2,
}
ENDLESS = {
    "trainer__train_steps": 10**6,
    "trainer__steps_per_loop": 20,
    "trainer__summary_interval": 20,
    "trainer__checkpoint_interval": 100,
    "runtime__heartbeat_timeout": 3,
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Servers(tmp_path_factory.mktemp("servers"), workers=2, ps=2)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def trained(servers, tmp_path_factory):
    """A run with all features: its directory, its events, and the batches of its workers."""
    folder = tmp_path_factory.mktemp("run") / "run"
    chief = Chief(servers, folder, "train_and_eval", task="noting", **EVERYTHING)
    code, last = chief.finish()
    assert code == 0, chief.events
    return folder, chief.events, [servers.batches(0), servers.batches(1)], last


@pytest.fixture
def chiefs(servers, tmp_path):
    started = []

    def start(mode="train", folder=tmp_path / "run", **order):
        for index in (0, 1):
            servers.batches(index)
        started.append(Chief(servers, folder, mode, **order))
        return started[-1]

    yield start
    for chief in started:
        chief.kill()


def expected(steps):
    """Returns number and content of each batch of a single process."""
    config = digits_config()
    task = TASKS.get(config.task.name).load()(config.task)
    batches = task.build_inputs(resolve_data_config(config.task.train_data, config.runtime))
    return [[step, int(content(*batch))] for step, batch in enumerate(batches.take(steps))]


def test_each_batch_is_made_once_and_workers_share_batches(trained):
    _, _, batches, _ = trained
    assert all(len(own) > STEPS // 5 for own in batches)
    assert sorted(batches[0] + batches[1]) == expected(STEPS)


def test_loss_decreases_and_results_are_reported(trained):
    _, events, _, last = trained
    losses = [event["training_loss"] for event in events if "trained" in event]
    assert losses[-1] < 0.8 * losses[0]
    assert [event["trained"] for event in events if "trained" in event][-1] == STEPS
    (result,) = (event for event in events if event.get("evaluated") == STEPS)
    assert result["validation_examples"] == 359
    assert last["validation_loss"] == result["validation_loss"]
    (inexact,) = (event["inexact"] for event in events if "inexact" in event)
    assert "asynchronous" in " ".join(inexact)


def test_first_steps_match_those_of_one_device(trained, tmp_path):
    """With the same weights, batches, dropout masks and updates, in loops of one step."""
    _, events, _, _ = trained
    one_by_one = {"trainer__steps_per_loop": 1, "trainer__train_steps": 2}
    first_losses = []
    run(
        digits_config(**EVERYTHING, **one_by_one),
        tmp_path,
        "train",
        train_actions=[lambda logs: first_losses.append(float(logs["training_loss"]))],
    )
    losses = {event["trained"]: event["training_loss"] for event in events if "trained" in event}
    assert losses[1] == pytest.approx(first_losses[0], rel=1e-5)
    assert losses.get(2, first_losses[1]) == pytest.approx(first_losses[1], rel=1e-5)


def test_everything_is_restored_on_two_replicas(trained, tmp_path):
    folder, _, _, last = trained
    before = CheckpointContent(folder / "checkpoints" / f"ckpt-{STEPS}")
    config = digits_config(**EVERYTHING)
    strategy = make_strategy("mirrored2")
    session = session_of(config, folder, strategy, resume="override")
    session.restore_or_initialize()
    assert session.step == STEPS
    assert int(session.state.optimizer.iterations.numpy()) == STEPS
    assert weights_fingerprint(session.state.model) == before.summary().weights == last["done"]
    session.state.checkpoint().write(str(tmp_path / "again"))
    assert CheckpointContent(tmp_path / "again").summary().state == before.summary().state
    with strategy.scope():
        results = session.evaluator.evaluate(tf.constant(session.validation_steps))
    np.testing.assert_allclose(results["validation_loss"], last["validation_loss"], rtol=1e-5)
    assert results["accuracy"] == pytest.approx(last["accuracy"], abs=1e-6)


@pytest.mark.matrix
@pytest.mark.parametrize("optimizer", ["adam", "adam_experimental"])
def test_parameter_servers_resume_from_one_device(optimizer, chiefs, tmp_path):
    kind = {"trainer__optimizer_config__optimizer__type": optimizer}
    short = {"trainer__train_steps": 20, "trainer__checkpoint_interval": 10, **kind}
    _, logs = run(digits_config(**short), tmp_path / "run", "train_and_eval")
    changes = {**short, "trainer__train_steps": 21}
    chief = chiefs("train_and_post_eval", resume="override", **changes)
    code, last = chief.finish()
    assert code == 0, chief.events
    first = CheckpointContent(tmp_path / "run" / "checkpoints" / "ckpt-20")
    second = CheckpointContent(tmp_path / "run" / "checkpoints" / "ckpt-21")
    assert second.state_keys() == first.state_keys()
    # One step of Adam moves no weight by more than the learning rate, or a little more.
    for key in second.weights():
        assert 0 < np.abs(second.tensor(key) - first.tensor(key)).max() < 0.006
    assert [event["trained"] for event in chief.events if "trained" in event] == [21]
    assert last["validation_loss"] == pytest.approx(logs["validation_loss"], abs=0.1)


@pytest.mark.matrix
def test_diverged_training_returns_to_a_checkpoint(chiefs):
    """This task makes a new dataset for each piece of work; after the loss, with a new seed."""
    chief = chiefs(task="toy", task__nan_from=12, trainer__recovery_max_trials=1)
    code, _ = chief.finish()
    assert code == 0, chief.events
    notes = [event["note"] for event in chief.events if "note" in event]
    returned = "returned to step 10 (recovery 1 of 1)"
    assert any("training diverged: " in note and returned in note for note in notes)
    assert [event["trained"] for event in chief.events if "trained" in event][-1] == 20


@pytest.mark.slow
def test_streaming_inputs_are_sharded_over_workers(chiefs, servers, tmp_path):
    chief = chiefs(wrap="streaming", trainer__train_steps=30)
    code, _ = chief.finish()
    assert code == 0, chief.events
    for index in (0, 1):
        assert {own for (own,) in servers.batches(index)} == {index}
    saved = CheckpointContent(tmp_path / "run" / "checkpoints" / "ckpt-30")
    assert saved.tensor("optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE") == 30


@pytest.mark.slow
def test_training_continues_without_a_lost_worker_until_it_returns(chiefs, servers, tmp_path):
    chief = chiefs(task="noting", **ENDLESS)
    chief.until(lambda event: event.get("trained", 0) >= 40)
    servers.signal("worker", 1)
    first = [*servers.batches(0), *servers.batches(1)]
    lost = chief.events[-1]["trained"]
    chief.until(lambda event: event.get("trained", 0) >= lost + 100)
    assert servers.batches(1) == []
    servers.start("worker", 1)
    end = time.monotonic() + 600
    second = []
    while not second and time.monotonic() < end:
        reached = chief.until(lambda event: "trained" in event)["trained"]
        second = servers.batches(1)
    assert second, "the worker did not come back"
    assert len({step for step, _ in first}) >= 40
    chief.signal(signal.SIGTERM)
    code, last = chief.finish()
    assert code == 143
    assert last["error"] == "Interrupted"
    step = int(last["message"].split()[4].rstrip(","))
    assert step >= reached
    saved = CheckpointContent(tmp_path / "run" / "checkpoints" / f"ckpt-{step}")
    assert saved.tensor("global_step/.ATTRIBUTES/VARIABLE_VALUE") == step
    assert saved.tensor("optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE") == step


def test_lost_parameter_server_ends_the_run(chiefs, servers, tmp_path):
    chief = chiefs(**ENDLESS)
    chief.until(lambda event: event.get("trained", 0) >= 120)
    servers.signal("ps", 1)
    begun = time.monotonic()
    code, last = chief.finish()
    assert (code, last["error"]) == (138, "MemberLost")
    assert f"ps 1 ({servers.jobs['ps'][1]})" in last["message"]
    assert time.monotonic() - begun < 300
    assert (tmp_path / "run" / "checkpoints" / "ckpt-100.index").exists()
    servers.start("ps", 1)
