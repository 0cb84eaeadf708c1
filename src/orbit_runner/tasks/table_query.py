"""What a task reads of its tables: which columns, as what, and which rows. No TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_arrays,
    describe_files,
)
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.build import CellError, read_table
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    INTEGER,
    KEY,
    NUMBER,
    TEXT,
    TablePart,
)
from orbit_runner.data.tables.dataset import TableDataset, TableUse
from orbit_runner.data.tables.hashing import value_bits
from orbit_runner.data.tables.split import part_of_table
from orbit_runner.errors import DataError, nearest_name_hint
from orbit_runner.tasks.shared_config import SECTIONS, TableSplitConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig

TRAIN, VALIDATION = SECTIONS
TARGET, WEIGHT, FEATURE, SPLIT = "target", "weight", "feature", "split"
MISSING_HINT = "if it is a missing value, list it in missing_values of both sections"


@dataclasses.dataclass(frozen=True)
class NamedColumn:
    """A column that a config names.

    Attributes:
        setting: The setting that names it, below `task`.
        name: Its name.
        kind: Its kind. "" is a number if the training table has numbers there, and else a category.
        role: `target`, `weight`, `feature` or `split`.
    """

    setting: str
    name: str
    kind: str
    role: str


@dataclasses.dataclass(frozen=True)
class TableQuery:
    """The tables of a task, and what it reads of them.

    Attributes:
        sections: The data sections that read tables, by name.
        columns: The columns that the config names, without those of `split`. If it names no
            features, they are the columns that nothing else uses.
        features: The setting of the features.
        advice: What to do if a feature that the config does not name has another kind than its
            values suggest.
        numbers: What to write if the values of a target are numbers; `{}` is its name.
        exclude: The columns that are not features.
        split: How the rows are split into parts; None if a section reads all of its files.
        has_categories: Whether texts are categories, and dates are points in time, unless the
            config says otherwise. If not, both are texts that the model reads.
        declares_classes: Whether the classes of a target are those that the files declare, if they
            do, and not only those of the training rows.
        advice_by_role: What to do if a cell does not fit a column that the config names.
    """

    sections: Mapping[str, TableDataConfig]
    columns: Sequence[NamedColumn]
    features: str
    advice: str
    numbers: str
    exclude: Sequence[str] = ()
    split: TableSplitConfig | None = None
    has_categories: bool = True
    declares_classes: bool = False
    advice_by_role: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def names_features(self) -> bool:
        """Whether the config names the features."""
        return any(column.role == FEATURE for column in self.columns)

    def datasets(self, section: str) -> list[TableDataset]:
        """Returns the dataset of each source of a section, which is opened once per process."""
        use = TableUse(
            kinds=tuple((column.name, column.kind) for column in self._declared(section)),
            has_features=self.names_features,
            is_split=self.split is not None,
        )
        sources = self.sections[section].sources
        return [data.reader.open(data, data.options, use) for data in sources]

    def named(self, section: str) -> list[NamedColumn]:
        """Returns the columns of a section that the config names, each with its kind."""
        columns = self._declared(section)
        kinds = {} if all(c.kind for c in columns) else self.datasets(TRAIN)[0].kinds
        numbers = {name for name, kind in kinds.items() if kind == NUMBER}
        inferred = {c.name: NUMBER if c.name in numbers else CATEGORY for c in columns}
        return [
            dataclasses.replace(column, kind=column.kind or inferred[column.name])
            for column in columns
        ]

    def _declared(self, section: str) -> list[NamedColumn]:
        columns = [*self.columns]
        if self.split is not None and not self.sections[section].traits.is_generated:
            if self.split.column:
                columns.append(NamedColumn("split.column", self.split.column, CATEGORY, SPLIT))
            columns += [NamedColumn("split.hash_of", n, KEY, SPLIT) for n in self.split.hash_of]
        return columns

    def feature_kinds(self) -> dict[str, str]:
        """Returns the kind of each feature by name: numbers, then categories, dates and texts.

        Features that the config does not name are in the order of the training table, and have the
        kinds that its dataset infers.
        """
        named = self.named(TRAIN)
        features = [(column.name, column.kind) for column in named if column.role == FEATURE]
        if not features:
            used = {column.name for column in named} | {*self.exclude}
            date = DATE if self.has_categories else CATEGORY
            kinds = {NUMBER: NUMBER, CATEGORY: CATEGORY, DATE: date}
            features = [
                (name, kinds[kind])
                for name, kind in self.datasets(TRAIN)[0].kinds.items()
                if kind in kinds and name not in used
            ]
        order = (NUMBER, CATEGORY, DATE, TEXT)
        return dict(sorted(features, key=lambda feature: order.index(feature[1])))

    def part(self, section: str) -> TablePart:
        """Returns the rows of a section. The table is read once per process.

        Raises `DataError` if the table is missing or damaged, a value does not fit its column, or a
        source of a mixture lacks a column.
        """
        data = self.sections[section]
        split = None if self.split is None else self.split.row_split([*self.feature_kinds()])
        parts = tuple(
            part_of_table(
                source, None if source_config.traits.is_generated else split, source_config.part
            )
            for source_config, source in zip(data.sources, self._sources(section), strict=True)
        )
        return _join_parts(parts) if data.mixture else parts[0]

    def _sources(self, section: str) -> list[TablePart]:
        """Returns each source of a section, with the columns that are used."""
        named = self.named(section)
        kinds = {column.name: column.kind for column in reversed(named)}
        # A column that is a feature keeps the kind of the feature if it also decides on the part.
        features = self.feature_kinds()
        kinds |= features
        datasets = self.datasets(section)
        if not self.names_features:
            integers = datasets[0].integers & features.keys()
            kinds |= {name: INTEGER for name in integers if kinds[name] == NUMBER}
        # The split compares and hashes texts, also those of columns that are numbers for the model.
        deciding = {
            column.name: column.kind
            for column in named
            if column.role == SPLIT and kinds[column.name] != column.kind
        }
        for number, dataset in enumerate(datasets):
            missing = next((name for name in kinds if name not in dataset.kinds), "")
            if number and missing in datasets[0].kinds:
                raise DataError(
                    f"{_name_of(dataset)}: has no column {missing!r}"
                    f"{nearest_name_hint(missing, dataset.kinds)}, which {_name_of(datasets[0])} "
                    "of mixture[0] has",
                    field=f"mixture[{number}]",
                    code="unknown-column",
                )
        try:
            return [
                _load_columns(dataset, tuple(kinds.items()), tuple(deciding.items()))
                for dataset in datasets
            ]
        except CellError as error:
            raise self._explain_cell(named, error) from None

    def _explain_cell(self, named: Sequence[NamedColumn], error: CellError) -> CellError:
        """Returns the error of a cell with its setting, and with what solves it."""
        column = next((c for c in named if c.name == error.column and c.role != SPLIT), None)
        setting, advice = self.features, ""
        if column is not None:
            advice = self.advice_by_role.get(column.role, "")
            setting = self.features if column.role == FEATURE else column.setting
        message, _, more = str(error).partition("\n")
        hints = [MISSING_HINT] * bool(error.text) + [self.advice] * (column is None)
        text = "\n".join(filter(None, (message, "; else ".join(hints), advice, more)))
        return CellError(text, error.column, error.text, setting, code=error.code)

    def classes(self, name: str) -> tuple[str, ...]:
        """Returns the classes of a target."""
        declared = self.datasets(TRAIN)[0].classes.get(name, ()) if self.declares_classes else ()
        counts = self.part(TRAIN).column(name).text_counts()
        return declared or tuple(text for text in counts if text)

    def data_files(self, section: str) -> list[DataFile]:
        """Returns descriptions of the files of a section, or of its columns if there are none."""
        datasets = self.datasets(section)
        paths = [path for dataset in datasets for path in dataset.files]
        files = describe_files(paths, content_digest)
        has_files = all(dataset.files for dataset in datasets)
        if has_files or self.sections[section].traits.is_generated:
            return files
        for dataset, source in zip(datasets, self._sources(section), strict=True):
            if not dataset.files:
                columns = source.columns.items()
                files += describe_arrays({name: value_bits(column) for name, column in columns})
        return files

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the setting, without `task`, that an error of a section is about."""
        if isinstance(error, CellError) and error.setting:
            return error.setting
        return self.features if error.field == "columns" else f"{section}.{error.field}"


@cache_source(maxsize=4)
def _join_parts(parts: tuple[TablePart, ...]) -> TablePart:
    """Returns the rows of several tables, one after the other."""
    return parts[0].join(parts)


def _name_of(dataset: TableDataset) -> str:
    return str(dataset.files[0]) if dataset.files else dataset.name


@cache_source(maxsize=8)
def _load_columns(
    dataset: TableDataset,
    kinds: tuple[tuple[str, str], ...],
    deciding: tuple[tuple[str, str], ...],
) -> TablePart:
    """Returns the columns of a table, each with its kind. They are read once per process.

    `deciding` are the columns that the split reads as another kind.
    """
    others = read_table(dataset, dict(deciding)).columns if deciding else {}
    return dataclasses.replace(read_table(dataset, dict(kinds)), deciding=others)
