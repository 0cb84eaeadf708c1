"""The exit codes of `runner`; `docs/configs.md` says what to do after each."""

CRASHED = 1
WRONG_USAGE = 2
DIVERGED = 3
DIFFERENT = 4
UNANSWERED = 5
OUTPUT_LOST = 6  # The run is complete, but its results could not be written.
MEMBER_LOST = 138  # Another member of the cluster.


def after_signal(number: int) -> int:
    """Returns the exit code after a signal, as shells report it."""
    return 128 + number


def of_child(returncode: int) -> int:
    """Returns the exit code of a child process, as shells report it, from its `returncode`."""
    return after_signal(-returncode) if returncode < 0 else returncode
