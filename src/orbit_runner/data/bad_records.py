"""Logs the records that are left out, and limits their number."""

from __future__ import annotations

from collections.abc import Mapping

from orbit_runner.errors import DataError, format_list
from orbit_runner.utils.log import note

_LISTED = 10


def check_bad_records(
    source: str, problems: Mapping[int, str], limit: int, total: int, what: str
) -> None:
    """Logs the records that are left out.

    `problems` maps the number of each record in the source to the reason, with its file and its
    position in the file. `what` is the plural for records, such as `rows`. Raises `DataError` if
    there are more than `limit`, or if they are all `total` records.
    """
    if not problems:
        return
    lines = format_list([problems[number].splitlines()[0] for number in sorted(problems)], _LISTED)
    if len(problems) > limit:
        raise DataError(
            f"{source}: {len(problems):,} of {total:,} {what} cannot be read, more than "
            f"max_bad_records={limit}\n{lines}",
            field="max_bad_records",
            code="too-many-bad-records",
        )
    if len(problems) == total:
        raise DataError(
            f"{source}: none of the {total:,} {what} can be read\n{lines}",
            field="input_path",
            code="empty-data",
        )
    note(
        f"warning: {source}: {len(problems):,} of {total:,} {what} cannot be read and are left "
        f"out, at most {limit:,} (max_bad_records)\n{lines}"
    )
