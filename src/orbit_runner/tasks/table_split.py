"""How the rows of a table are split into parts, in a config."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import Config, config_class, field

if TYPE_CHECKING:
    from orbit_runner.data.tables.split import RowSplit


@config_class
class TableSplitConfig(Config):
    """How the rows of a table are split: by a column, or by a hash."""

    column: str = field("", help="column whose values are the names of the parts")
    fractions: Mapping[str, Any] | None = field(
        None, help="share of the rows of each part, such as {train: 0.8, validation: 0.2}"
    )
    hash_of: list[str] = field(
        (),
        help="`fractions`: columns that decide on the part of a row, such as an ID; by default all "
        "features, so that equal rows are in the same part",
    )
    seed: int = field(0, le=2**32 - 1, help="`fractions`: another seed gives other parts")

    def problems(self) -> Iterator[Problem]:
        """Yields fractions that are not shares, and settings without effect."""
        if bool(self.column) == bool(self.fractions):
            got = "both" if self.column else "neither"
            yield Problem(
                "column",
                f"got {got} of column and fractions, expected one of them",
                code="conflict",
            )
            return
        if self.column and self.hash_of:
            yield Problem("hash_of", "has no effect with column", code="no-effect")
        shares = [*(self.fractions or {}).values()]
        if not all(_is_share(share) for share in shares):
            got = ", ".join(map(repr, shares))
            yield Problem(
                "fractions",
                f"got {got}, expected numbers above 0 and at most 1",
                code="out-of-range",
            )
        elif math.fsum(shares) > 1 + 1e-9:
            yield Problem(
                "fractions",
                f"got a sum of {math.fsum(shares):g}, expected at most 1",
                code="out-of-range",
            )

    def row_split(self, hash_of: Sequence[str] = ()) -> RowSplit:
        """Returns the split; by default, it depends on the columns in `hash_of`."""
        from orbit_runner.data.tables.split import RowSplit

        fractions = tuple((self.fractions or {}).items())
        return RowSplit(self.column, fractions, tuple(self.hash_of or hash_of), self.seed)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts; empty if a column defines them."""
        return tuple(self.fractions or ())


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
