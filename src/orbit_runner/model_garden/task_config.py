"""The interface that the runner expects of a task section, for sections of Model Garden."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from orbit_runner.config.schema.base import Config, config_class
from orbit_runner.data.file_patterns import is_local, patterns
from orbit_runner.model_garden.schema import OfficialSection

_SECTIONS = ("train_data", "validation_data")


@config_class
class OfficialTask(Config):
    """Base class of the classes that mirror task sections of Model Garden; they add the fields."""

    input_rank: ClassVar[int] = 4
    excludes_examples: ClassVar[bool] = False
    batch_shapes_vary: ClassVar[bool] = False
    # Defaults for fields that not all of Model Garden's classes have.
    name: ClassVar[Any] = None
    init_checkpoint: ClassVar[str] = ""
    model: ClassVar[Any] = None
    train_data: ClassVar[Any] = OfficialSection()
    validation_data: ClassVar[Any] = OfficialSection()
    differential_privacy_config: ClassVar[Any] = None
    train_input_partition_dims: ClassVar[Any] = None
    eval_input_partition_dims: ClassVar[Any] = None
    compares_data: ClassVar[bool] = False

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields a problem for each local file that the config names and that does not exist."""
        for section in _SECTIONS:
            path = getattr(getattr(self, section), "input_path", "")
            for pattern in patterns(path):
                if is_local(pattern) and not glob.glob(pattern):
                    yield f"{section}.input_path", f"no file matches {pattern}"
        yield from _checkpoint_problems(self.init_checkpoint)

    def data_files(self) -> None:
        """Returns None, because only the names of files are known."""

    def image_shape(self, section: str) -> tuple[int, int, int] | None:
        """Returns (height, width, channels) of a section's images, or None if they are unknown."""
        size = getattr(self.model, "input_size", None)
        return tuple(size) if size and len(size) == 3 else None


def _checkpoint_problems(path: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(path, str) or not path or not is_local(path):
        return
    place = Path(path)
    folder = place / "checkpoint" if place.is_dir() else Path(f"{path}.index")
    if not folder.exists():
        yield "init_checkpoint", f"there is no checkpoint at {path!r}"
