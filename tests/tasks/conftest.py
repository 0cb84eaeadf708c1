"""What the tests of tasks share: printed messages, and the files of the table of `make_rows`."""

from pathlib import Path

import pytest

from tests.support.messages import printed_messages

__all__ = ["printed_messages"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A CSV file, which a test may change."""
    from tests.support.tables import make_rows, write_csv

    return write_csv(tmp_path / "a.csv", make_rows())


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV file that the tests of a module only read."""
    from tests.support.tables import make_rows, write_csv

    return write_csv(tmp_path_factory.mktemp("table") / "a.csv", make_rows())
