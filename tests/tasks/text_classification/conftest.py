"""What the tests of text classification share: texts in files."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of texts that the tests of a module only read."""
    from tests.support.texts import write_texts

    return write_texts(tmp_path_factory.mktemp("texts"))
