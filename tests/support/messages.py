"""Messages of the code under test, and what commands print."""

from collections.abc import Iterator

import pytest

from orbit_runner.cli.main import main
from orbit_runner.utils.log import PlainMessages, log_scope


@pytest.fixture(autouse=True)
def printed_messages() -> Iterator[None]:
    """Prints messages as the command line does."""
    with log_scope(PlainMessages()):
        yield


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the standard output of a command that must succeed."""
    assert main(arguments) == 0
    return capsys.readouterr().out
