"""Native code writes to a descriptor of its own, which can be discarded for a while."""

from __future__ import annotations

import sys

from tests.support.processes import process

_SCRIPT = """
import os, sys
from orbit_runner.utils.streams import discard_native_output_scope
os.write(2, b"native before\\n")
with discard_native_output_scope():
    os.write(2, b"native inside\\n")
    print("python inside", file=sys.stderr)
os.write(2, b"native after\\n")
print("python after", file=sys.stderr)
try:
    with discard_native_output_scope():
        raise ValueError
except ValueError:
    os.write(2, b"native at the end\\n")
"""


def test_only_native_output_is_discarded():
    completed = process(sys.executable, "-c", _SCRIPT)

    assert completed.stderr.splitlines() == [
        "native before",
        "python inside",
        "native after",
        "python after",
        "native at the end",
    ]
