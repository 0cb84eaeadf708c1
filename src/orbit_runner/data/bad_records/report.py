"""Logs the records that are left out, and limits their number."""

from __future__ import annotations

from collections.abc import Mapping

from orbit_runner.errors import DataError, format_list
from orbit_runner.utils.log import note

_LISTED = 10


def check_bad_records(
    source: str, found: Mapping[int, str], limit: int, total: int, what: str
) -> None:
    """Logs the records that are left out.

    `found` maps the number of each record in the source to the reason, with its file and its
    position in the file. `what` is the plural for records, such as `rows`. Raises `DataError` if
    there are more than `limit`, or if they are all `total` records.
    """
    if not found:
        return
    lines = format_list([found[number].splitlines()[0] for number in sorted(found)], _LISTED)
    if len(found) > limit:
        raise DataError(
            f"{source}: {len(found):,} of {total:,} {what} cannot be read, more than "
            f"max_bad_records={limit}\n{lines}",
            field="max_bad_records",
        )
    if len(found) == total:
        raise DataError(
            f"{source}: none of the {total:,} {what} can be read\n{lines}", field="input_path"
        )
    note(
        f"warning: {source}: {len(found):,} of {total:,} {what} cannot be read and are left out, "
        f"at most {limit:,} (max_bad_records)\n{lines}"
    )
