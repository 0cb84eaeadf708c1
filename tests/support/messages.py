"""Messages of the code under test."""

from collections.abc import Iterator

import pytest

from orbit_runner.utils.log import PlainMessages, log_scope


@pytest.fixture(autouse=True)
def printed_messages() -> Iterator[None]:
    """Prints messages as the command line does."""
    with log_scope(PlainMessages()):
        yield
