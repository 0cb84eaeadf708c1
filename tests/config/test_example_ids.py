"""The IDs of examples to exclude, and the fingerprint of the config."""

from __future__ import annotations

from typing import Any

from orbit_runner.config.fingerprint import config_fingerprint
from tests.support.digits import digits_config
from tests.support.problems import raises
from tests.support.toy import toy_config


def excluding(ids: Any) -> Any:
    """Returns the config of the digits without some training examples."""
    config = digits_config()
    data = config.task.train_data.replace(exclude=ids)
    return config.replace(task=config.task.replace(train_data=data))


def test_fingerprint_depends_on_the_ids():
    fingerprint = config_fingerprint(excluding((17, 4)))

    assert config_fingerprint(excluding([17, 4])) == fingerprint
    assert config_fingerprint(digits_config()) != fingerprint
    assert config_fingerprint(excluding((17,))) != fingerprint


def test_empty_list_keeps_the_fingerprint():
    assert config_fingerprint(excluding(())) == config_fingerprint(digits_config())


def test_task_without_an_order_is_refused():
    with raises("not-supported", "task.train_data.exclude"):
        toy_config(task__train_data__exclude=[1])

    assert [*excluding((1,)).problems()] == []
