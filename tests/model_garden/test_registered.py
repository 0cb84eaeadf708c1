"""Every experiment that the installed Model Garden registers."""

import json
import subprocess
import sys

import pytest
from official.core import train_utils

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.model_garden import catalogue, loading
from orbit_runner.model_garden.loading import from_model_garden
from tests.support import registered_examples  # noqa: F401 - registers experiments

IMPORTABLE = [
    name for name, entry in catalogue.experiments().items()
    if not loading.try_import(entry.module)
]  # fmt: skip


def resolved(name, **request):
    return resolve(Request(experiment=f"official/{name}", **request))


def test_catalogue_matches_the_experiments_registered_by_imports():
    own = {
        name
        for name, factory in loading.registered_factories()
        if factory.__module__.startswith("offic")
    }

    assert own == {*IMPORTABLE}
    assert len(own) > 80


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", IMPORTABLE)
def test_registered_experiment_resolves_and_round_trips(name, tmp_path):
    registered = loading.load_experiment(name)

    resolution = resolved(name)

    assert resolution.config.for_task.as_dict() == registered.as_dict()
    assert type(resolution.config.for_task) is type(registered)
    (tmp_path / "config.yaml").write_text(to_yaml(resolution.config))
    assert resolve(Request(experiment=str(tmp_path))).config == resolution.config
    # A config written by Model Garden means the same here, unchanged.
    train_utils.serialize_config(registered, str(tmp_path))
    written = resolved(name, config_files=(str(tmp_path / "params.yaml"),))
    assert written.config.for_task.as_dict() == registered.as_dict()
    assert from_model_garden(registered).for_task.as_dict() == registered.as_dict()


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("slices", "runtime.num_slices=2,task.shape[0]=7,task.shape[1]=8"),
        ("slices", '{"task": {"shape": [3, 4], "sizes": []}}'),
        ("restricted", "trainer.validation_steps=3,task.train_data.input_path=a"),
        (
            "plain",
            "task.model.model_id=new,task.model.head.units=7,trainer.train_steps=10,"
            "trainer.validation_steps=11,notes.author=me",
        ),
    ],
)
def test_override_of_a_users_experiment_means_the_same_as_in_model_garden(name, override):
    name = f"orbit_runner_test_{name}"
    flags = train_utils.ParseConfigOptions(name, [], params_override=override)
    expected = train_utils.parse_configuration(flags, lock_return=False, print_return=False)
    expected.runtime.tpu = None if "plain" not in name else "fake"  # a flag that was not given

    config = resolved(name, params_overrides=(override,)).config.for_task

    assert type(config) is type(expected)
    # Lists and tuples count as equal.
    assert json.loads(json.dumps(config.as_dict())) == json.loads(json.dumps(expected.as_dict()))


@pytest.mark.parametrize("name", sorted({*catalogue.experiments()} - {*IMPORTABLE}))
def test_experiment_whose_module_cannot_be_imported_is_reported(name):
    with pytest.raises(ConfigError) as caught:
        resolved(name)

    (problem,) = caught.value.problems
    assert problem.path == "--experiment"
    module = catalogue.experiments()[name].module
    assert problem.message.startswith(f"Model Garden cannot import {module}: ")


_LOOKED_UP = """
from orbit_runner.model_garden import loading
for name in ("maxvit_imagenet", "movinet_kinetics600"):
    loading.load_experiment(name)
from official.core import registry
from official.vision.modeling.backbones import factory
for backbone in ("maxvit", "movinet"):
    registry.lookup(factory._REGISTERED_BACKBONE_CLS, backbone)
"""


@pytest.mark.slow
def test_networks_of_a_project_are_registered_even_if_its_task_is_shared():
    subprocess.run([sys.executable, "-c", _LOOKED_UP], check=True)
