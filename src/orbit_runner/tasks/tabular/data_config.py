"""Settings of a table: its source, and which rows a section reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbit_runner.config.errors import Problem, wrong_type
from orbit_runner.config.schema.base import config_class, field
from orbit_runner.config.schema.data import source_field
from orbit_runner.data.tables.cell_texts import normal_text
from orbit_runner.data.tables.dataset import TableOptions, TableReader
from orbit_runner.registry import TABLE_SOURCES
from orbit_runner.tasks.shared_config import StoredDataConfig

_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")


@config_class
class TableDataConfig(StoredDataConfig):
    """A table and its pipeline."""

    source: str = source_field(TABLE_SOURCES)
    split: str = field(
        "",
        help="part of the rows, by a name that task.split defines; by default train or "
        "validation, depending on is_training",
    )
    delimiter: str = field(",", help="`source: csv`: character between the columns")
    column_names: list[str] = field(
        (), help="`source: csv`: names of the columns, if the files have no header"
    )
    missing_values: list[str] = field(
        _MISSING,
        help="texts that mean that a value is missing; the default is for `source: csv`, and other "
        "sources read a list that you set",
    )
    function: str = field(
        "", help="`source: arrays`: function that returns arrays by name, as my_package.data:load"
    )
    files: Mapping[str, Any] | None = field(
        None,
        help="`source: text_files`: text file, or list of files, of each class, such as "
        "{en: train.en, de: train.de}, with one example per line",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that the source ignores, and required ones that are missing."""
        yield from super().problems()
        if len(self.delimiter) != 1:
            message = f"got {self.delimiter!r}, expected one character, such as ',' or '|'"
            yield wrong_type("delimiter", message)
        expected = "expected two or more, such as {en: train.en, de: train.de}"
        if self.files is not None and len(self.files) < 1 + bool(self.is_training):
            yield wrong_type("files", f"got the classes {[*self.files]}, {expected}")
        for label, names in self.class_files:
            if not names:
                got = f"{label}: got {(self.files or {})[label]!r}"
                yield wrong_type("files", f"{got}, expected the name of a file, or a list")

    @property
    def reader(self) -> TableReader:
        """How the source is read."""
        reader: TableReader = TABLE_SOURCES.get(self.source).load()
        return reader

    @property
    def options(self) -> TableOptions:
        """The settings that the format reads."""
        values = {
            "column_names": tuple(self.column_names),
            "missing_values": self.missing_texts,
            "files": self.class_files,
        }
        names = self.traits.settings
        return TableOptions(**{name: values.get(name, getattr(self, name)) for name in names})

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """The texts that mean that a value is missing, and the forms in which they are compared.

        The default is only for untyped values.
        """
        is_default = tuple(self.missing_values) == _MISSING
        is_typed = self.source not in TABLE_SOURCES or self.reader.is_typed
        texts = () if is_default and is_typed else self.missing_values
        return tuple(dict.fromkeys([*texts, *(normal_text(text.strip()) for text in texts)]))

    @property
    def class_files(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The classes of `files`, each with the names of its files; () if it has no such names."""
        return tuple((label, names_of(names)) for label, names in (self.files or {}).items())


def names_of(value: object) -> tuple[str, ...]:
    """Returns one name or a list of names as a tuple; () if it is neither."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) and n for n in names):
        return ()
    return tuple(names)
