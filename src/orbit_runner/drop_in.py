"""Makes drivers of Model Garden, and scripts that call them, use this runner.

Call `install` before the driver starts:

    from official.vision import train
    from orbit_runner import drop_in

    drop_in.install()
    app.run(train.main)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from official.core import train_lib as official_train_lib
from official.core import train_utils as official_train_utils
from official.modeling.multitask import train_lib as official_multitask_train_lib

from orbit_runner import multitask_train_lib, train_lib, train_utils

if TYPE_CHECKING:
    from types import ModuleType

_REPLACEMENTS: tuple[tuple[ModuleType, ModuleType, tuple[str, ...]], ...] = (
    (official_train_lib, train_lib, ("run_experiment", "OrbitExperimentRunner")),
    (
        official_train_utils,
        train_utils,
        ("parse_configuration", "serialize_config", "remove_ckpts"),
    ),
    (
        official_multitask_train_lib,
        multitask_train_lib,
        ("run_experiment", "run_experiment_with_multitask_eval"),
    ),
)


def install() -> None:
    """Replaces the functions of Model Garden's runner with those of this runner, in this process.

    Drivers call them as attributes of their modules, so no driver has to change. A class that was
    already derived from Model Garden's `OrbitExperimentRunner` keeps its base class.
    """
    for official, replacement, names in _REPLACEMENTS:
        for name in names:
            setattr(official, name, getattr(replacement, name))


@contextlib.contextmanager
def installed_scope() -> Iterator[None]:
    """Replaces the functions in a `with` block."""
    before = [
        (official, name, getattr(official, name))
        for official, _, names in _REPLACEMENTS
        for name in names
    ]
    install()
    try:
        yield
    finally:
        for official, name, value in before:
            setattr(official, name, value)
