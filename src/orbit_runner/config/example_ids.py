"""The IDs of examples that `train_data.exclude` lists, in the config or in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.errors import DataError, SettingError

EXCLUDE = "task.train_data.exclude"
UNREADABLE = "ids:unreadable"
# A path can contain `#`, but rarely after a space.
_COMMENT = re.compile(r"(^|\s)#.*")


def read_ids(exclude: str | Sequence[str | int]) -> Mapping[str, str]:
    """Returns where each ID is listed, as `FILE:LINE`; "" if it is in the config.

    `exclude` is a list of IDs, or the path of a text file with one ID per line. Raises DataError
    with the field `exclude` if the file cannot be read or lists no ID.
    """
    if not isinstance(exclude, str):
        return dict.fromkeys(map(str, exclude), "")
    from orbit_runner.storage.staging import local_file

    try:
        path = Path(local_file(exclude, EXCLUDE))
        # Not `splitlines`, for which other characters, which a comment may contain, end a line.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except SettingError as error:
        raise DataError(error.reason, field="exclude", code=error.code) from error
    except OSError as error:
        raise DataError(
            f"{exclude}: cannot be read ({error.strerror})\n"
            "expected a text file with one ID per line, or a list: exclude: [17, 42]",
            field="exclude",
            code="unreadable-file",
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{exclude}: is not valid UTF-8 ({error.reason})", field="exclude", code="bad-syntax"
        ) from None
    texts = [_COMMENT.sub("", line).strip() for line in lines]
    locations = {text: f"{exclude}:{number}" for number, text in enumerate(texts, 1) if text}
    if not locations:
        raise DataError(
            f"{exclude}: lists no ID, expected one per line", field="exclude", code="empty-data"
        )
    return locations


def ids_digest(exclude: str | Sequence[str | int]) -> str:
    """Returns a digest of the IDs that does not depend on where they are listed or in what order.

    If they cannot be read, it is `UNREADABLE`.
    """
    import hashlib  # Not at the top, because all commands import this module.

    try:
        ids = sorted(read_ids(exclude))
    except DataError:
        return UNREADABLE
    return f"ids:{hashlib.sha256(chr(10).join(ids).encode()).hexdigest()}"
