"""Prints the messages of the code under test, as the command line does."""

from collections.abc import Iterator

import pytest

from orbit_runner.utils.log import PlainMessages, log_scope


@pytest.fixture(autouse=True)
def printed_messages() -> Iterator[None]:
    with log_scope(PlainMessages()):
        yield
