"""The files that `task.model.weights` names: a published checkpoint, or the user's own."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard

from orbit_runner.datasets.download import DownloadError, fetch
from orbit_runner.errors import SettingError
from orbit_runner.models.catalog import IMAGENET
from orbit_runner.storage.paths import cache_directory
from orbit_runner.tasks.image_classification.models import ApplicationConfig, ImageModelConfig
from orbit_runner.utils.log import phase

SETTING = "task.model.weights"
_INDEX = ".index"


def is_of_keras(model: ImageModelConfig) -> TypeGuard[ApplicationConfig]:
    """Returns whether the weights are those that tf_keras downloads and verifies."""
    return isinstance(model, ApplicationConfig) and model.weights == IMAGENET


def initial_weights(model: ImageModelConfig) -> Path | None:
    """Returns the local path of the weights file or checkpoint, or None if there is none.

    A published checkpoint is downloaded. Raises `RunnerError` if it cannot be downloaded, and
    `SettingError` if there is no such file.
    """
    weights = weights_of(model)
    if not weights:
        return None
    urls = model.published_files() if weights == IMAGENET else ()
    files = _published_files(urls) if urls else own_files(model)
    if not files:
        message = (
            f"there is no file or checkpoint at {weights!r}\n"
            f"allowed: {IMAGENET}, the path of a file, or of a checkpoint without its suffix"
        )
        raise SettingError(SETTING, message, code="missing-file")
    return files[0].with_suffix("") if files[0].suffix == _INDEX else files[0]


def weights_of(model: ImageModelConfig) -> str:
    """Returns the setting `weights` of a network; "" if it is not set or the network has none."""
    return getattr(model, "weights", None) or ""


def own_files(model: ImageModelConfig) -> list[Path]:
    """Returns the user's own weights file, or the index and the data of a checkpoint.

    Empty if there are none, or if the config names published weights.
    """
    weights = weights_of(model)
    if weights in ("", IMAGENET):
        return []
    index = Path(f"{weights}{_INDEX}")
    if index.is_file():
        return [index, *map(Path, sorted(glob.glob(f"{glob.escape(weights)}.data-*")))]
    return [Path(weights)] if os.path.isfile(weights) else []


def _published_files(urls: Sequence[str]) -> list[Path]:
    """Returns the files of a published checkpoint in the cache; downloads missing ones."""
    # Its publisher states no digests. The name of the last directory is that of the network.
    directory = cache_directory("weights") / urls[0].split("/")[-2]
    paths = [directory / url.rpartition("/")[2] for url in urls]
    try:
        for url, path in zip(urls, paths, strict=True):
            if path.exists():
                continue
            phase(f"downloading {path.name}")
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".download-", dir=directory) as aside:
                fetch(url, Path(aside) / path.name)
                os.replace(Path(aside) / path.name, path)
    except DownloadError as error:
        raise DownloadError(
            f"{SETTING}: {error}\nto use copies from elsewhere, put them into {directory}:\n"
            + "\n".join(f"  {url}" for url in urls),
            code=error.code,
        ) from None
    except OSError as error:
        raise DownloadError(f"{SETTING}: {error}") from None
    return paths
