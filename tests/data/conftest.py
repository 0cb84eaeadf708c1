"""What the tests of data share: printed messages, and where texts are cached."""

from pathlib import Path

import pytest

from tests.support.messages import printed_messages

__all__ = ["printed_messages"]


@pytest.fixture
def text_cache(own_cache: Path) -> Path:
    """Returns the directory of the caches of texts, which is empty."""
    return own_cache / "orbit_runner" / "text"
