"""The base class of all configs, and the function that declares their settings."""

from __future__ import annotations

import dataclasses
import operator
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypedDict, TypeVar

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Required, Self, Unpack, dataclass_transform

    from orbit_runner.registration import Registry
    from orbit_runner.utils.types import JsonObject

    # What `field` declares about a setting.
    Metadata: TypeAlias = Mapping[str, Any]
else:

    def dataclass_transform(**_):
        """Does nothing. Only type checkers need it, and Python 3.10 lacks it."""
        return lambda decorator: decorator


_C = TypeVar("_C")
_UNSET: Any = dataclasses.MISSING
# The default limits of settings. TensorFlow uses 32 bits for many sizes, and float32 for weights
# and rates.
INT_MAX = 2**31 - 1
FLOAT_MAX = 3.4e38
# What a setting keeps if a subclass declares it again, for another default or help.
_KEPT = ("weights", "role", "path")


def is_finite_number(value: object) -> bool:
    """Returns whether a value is a number, but not a boolean, that a float can hold."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # A comparison, because `math.isfinite` raises an error for very large integers.
    return abs(value) <= sys.float_info.max


class Declaration(TypedDict, total=False):
    """What `field` declares about a setting."""

    help: Required[str]  # A one-line description of the setting.
    allowed: tuple[object, ...]  # If empty, all values of the type are allowed.
    # Limits of a number or of each number in a list: the value is at least `ge`, more than `gt`,
    # at most `le` and less than `lt`. By default, `le` is `INT_MAX` or `FLOAT_MAX`, so infinity is
    # not allowed.
    ge: float
    gt: float
    le: float
    lt: float
    # Why only the default is accepted. For settings of Model Garden that have no meaning here: any
    # other value is an error that shows this reason.
    unsupported: str
    lowercase: bool  # Whether case is ignored. The value is converted to lowercase.
    variants: Registry  # The entry with the section's `name` provides the section's class.
    # Its names are the allowed values, for editors and completion. `problems()` of the task rejects
    # other values.
    registry: Registry | None
    # Another setting of the section, of which only one can be set: that of the higher layer is
    # used.
    exclusive_with: str
    holds_at_zero: bool  # Whether 0 overrides `exclusive_with`. Otherwise, 0 means unset.
    # Whether the value names a directory inside another one: a relative path without `..`.
    subdirectory: bool
    word: str  # The only string that is allowed, instead of a number or a boolean.
    # When the setting can change the weights: `NEVER`, or `when(condition)`; see
    # `schema/weights.py`. For a section, it applies to all settings in it. By default always.
    weights: Weights
    # What the setting is for, if another process does without it; see `Config.without`.
    # `cluster`: which processes train together, `service`: which make the batches, `devices`: what
    # a process computes on, `output`: what is written besides records and checkpoints, `report`:
    # what is measured for records alone, `time`: how long a run may take.
    role: str
    # Whether the value is a path: `file`, `dir`, `patterns` of files, or `checkpoint`. It may be a
    # URL, from which a run copies what it needs.
    path: str


def field(
    default: Any = _UNSET,
    *,
    factory: Callable[[], Any] = _UNSET,
    **declaration: Unpack[Declaration],
) -> Any:
    """Declares one setting of a config class.

    Args:
        default: The default value.
        factory: A function that returns the default, for sections.
        **declaration: What is declared about the setting.

    Returns:
        A dataclass field.
    """
    return dataclasses.field(default=default, default_factory=factory, metadata=declaration)


def default_of(field: dataclasses.Field[object]) -> object:
    """Returns the default of a field, or None if it has none."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if callable(field.default_factory) else None


@dataclasses.dataclass(frozen=True)
class Rule:
    """A combination of settings that is a problem, for `Config._rules`.

    Attributes:
        path: The setting to blame, as seen from the section.
        applies: Returns whether a section has the problem.
        message: What is wrong: a text in which `{value}` is the value of the setting and `{s.NAME}`
            another setting of the section, or a function that returns it.
        code: One of `error_codes.CODES`. With `no-effect`, the rule belongs to `Config.inert`.
    """

    path: str
    applies: Callable[[Any], object]
    message: str | Callable[[Any], str]
    code: str = "not-supported"

    def problem(self, section: Config) -> Problem:
        """Returns the problem of a section that has it."""
        if callable(self.message):
            return Problem(self.path, self.message(section), code=self.code)
        value = operator.attrgetter(self.path)(section)
        return Problem(self.path, self.message.format(s=section, value=value), code=self.code)


@dataclasses.dataclass(frozen=True)
class GardenOnly:
    """A setting of Model Garden that has no meaning here. Its files may contain it.

    Attributes:
        default: Model Garden's default, which is always accepted.
        reason: Why another value has no effect. Such a value is an error in this package's
            experiments and a note in Model Garden's.
        refused: Whether another value is an error in Model Garden's experiments, too.
    """

    default: object
    reason: str
    refused: bool = False

    @staticmethod
    def settings(**settings: GardenOnly) -> Mapping[str, GardenOnly]:
        """Returns the settings of `Config.garden_only` by name."""
        return types.MappingProxyType(settings)


def _plain_value(value: object) -> object:
    if isinstance(value, Config):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain_value(item) for item in value]
    return value


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config_class(cls: type[_C]) -> type[_C]:
    """Declares a config class: a frozen dataclass whose arguments are keyword-only.

    `Config` defines the methods of a dataclass once for all classes. To generate them for each
    class would take a third of the time of `runner show`.
    """
    config_type = dataclasses.dataclass(
        frozen=True, init=False, eq=False, repr=False, kw_only=True
    )(cls)
    config_type._defaults = {  # type: ignore[attr-defined]
        f.name: (f.default, f.default_factory)
        for f in dataclasses.fields(config_type)  # type: ignore[arg-type]
    }
    return config_type


class FrozenMapping(Mapping[str, Any]):
    """A mapping that cannot be changed, and that messages show like a dict."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> object:
        """Returns a value."""
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """Yields the keys in their order."""
        return iter(self._values)

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._values)

    def __or__(self, other: Mapping[str, object]) -> dict[str, object]:
        """Returns a dict with the values of both; those of `other` win."""
        return {**self._values, **other}

    def __ror__(self, other: Mapping[str, object]) -> dict[str, object]:
        """Returns a dict with the values of both; those of this mapping win."""
        return {**other, **self._values}

    def __repr__(self) -> str:
        """Returns the values as a dict with lists, as the user wrote them."""
        return repr(_plain_value(self))


NO_ARGUMENTS: Mapping[str, object] = FrozenMapping({})


@config_class
class Config:
    """A frozen section of the config tree.

    `as_dict` and `replace` work as in Model Garden's configs, so its factories accept this class.
    """

    # Sections that may be incomplete unless the run trains. They are checked before training.
    checked_later: ClassVar[tuple[str, ...]] = ()
    # The setting that a string in a list of sections sets; "" if strings are not allowed.
    shorthand: ClassVar[str] = ""
    # The combinations of settings that are a problem, besides those of the base classes.
    _rules: ClassVar[tuple[Rule, ...]] = ()
    # Settings of Model Garden's section that this one does not have.
    garden_only: ClassVar[Mapping[str, GardenOnly]] = types.MappingProxyType({})

    # The default and the default factory of each setting.
    _defaults: ClassVar[Mapping[str, tuple[Any, Any]]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Lets settings that a subclass declares again keep what they do not declare anew."""
        super().__init_subclass__(**arguments)
        inherited = getattr(super(cls, cls), "__dataclass_fields__", {})
        for name, again in vars(cls).items():
            if name in inherited and isinstance(again, dataclasses.Field):
                before, now = inherited[name].metadata, again.metadata
                kept = {key: before[key] for key in _KEPT if before.get(key) and not now.get(key)}
                again.metadata = types.MappingProxyType({**now, **kept})

    def __init__(self, **settings: object) -> None:
        """Sets the settings, and the others to their defaults."""
        values = self.__dict__
        unset = []
        for name, (default, factory) in self._defaults.items():
            if name in settings:
                values[name] = settings.pop(name)
            elif default is not _UNSET:
                values[name] = default
            elif factory is not _UNSET:
                values[name] = factory()
            else:
                unset.append(name)
        if settings or unset:
            problem = f"unknown settings: {[*settings]}" if settings else f"not set: {unset}"
            raise TypeError(f"{type(self).__name__}: {problem}")
        self.__post_init__()

    def __getattr__(self, name: str) -> Any:
        """Returns Model Garden's default of a setting in `garden_only`, which its trainer reads."""
        if name in type(self).garden_only:
            return type(self).garden_only[name].default
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __post_init__(self) -> None:
        """Completes the settings, in classes that have something to complete."""

    def __eq__(self, other: object) -> bool:
        """Compares the settings of two sections of the same class."""
        if type(self) is not type(other) or not isinstance(other, Config):
            return NotImplemented
        return self._comparison_key() == other._comparison_key()

    def __hash__(self) -> int:
        """Returns a hash of the settings."""
        return hash(self._comparison_key())

    def __repr__(self) -> str:
        """Returns the class and its settings."""
        names = (f.name for f in dataclasses.fields(self))
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    def _comparison_key(self) -> tuple[object, ...]:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def as_dict(self) -> JsonObject:
        """Returns the section as nested dicts, lists and scalars."""
        return {f.name: _plain_value(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def without(self, *roles: str) -> Self:
        """Returns a copy in which the settings with these roles have no effect.

        They have their defaults, and lists are empty, here and in all sections below.
        """
        changes: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = left = getattr(self, field.name)
            if field.metadata.get("role") in roles:
                default = default_of(field)
                left = () if isinstance(default, tuple) else default
            elif isinstance(value, Config):
                left = value.without(*roles)
            if left is not value:
                changes[field.name] = left
        return self.replace(**changes) if changes else self

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for problems that types and limits alone cannot detect."""
        yield from (rule.problem(self) for rule in self._broken() if rule.code != "no-effect")

    def unread(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that `source` does not read, whatever their values.

        Such a setting is an error, unless it was set for another `source` in a lower layer.
        """
        yield from ()

    def inert(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that have no effect in combination with others.

        They are errors in this package's experiments and notes in Model Garden's.
        """
        yield from (rule.problem(self) for rule in self._broken() if rule.code == "no-effect")

    def _broken(self) -> Iterator[Rule]:
        """Yields the rules of the class and of its base classes that the section breaks."""
        for owner in reversed(type(self).__mro__):
            rules: tuple[Rule, ...] = vars(owner).get("_rules", ())
            yield from (rule for rule in rules if rule.applies(self))


@config_class
class OneOf(Config):
    """A section with one block per choice. `type` names the block in use.

    Blocks that are not chosen are checked like the others, then reset to their defaults.
    """

    _rules = (
        Rule("type", lambda o: o.type in o.unavailable,
             lambda o: f"got {o.type!r}: {o.unavailable[o.type]}\n"
             f"allowed: {', '.join(o.choices())}", "not-allowed"),
    )  # fmt: skip
    # Blocks that files may contain but that cannot be chosen, with the reason.
    unavailable: ClassVar[Mapping[str, str]] = types.MappingProxyType({})
    type: str | None = field(None, help="name of the block below to use")

    @classmethod
    def choices(cls) -> tuple[str, ...]:
        """Returns the names of the blocks that can be chosen."""
        return tuple(f.name for f in dataclasses.fields(cls) if f.name != "type")

    def get(self) -> Any:
        """Returns the chosen block, or None if no block is chosen or it is not available."""
        return None if self.type is None else getattr(self, self.type, None)

    def _comparison_key(self) -> tuple[object, ...]:
        """Returns the type and the chosen block, because the other blocks are never used."""
        return self.type, self.get()

    def as_dict(self) -> JsonObject:
        """Returns the type and the chosen block as nested dicts, lists and scalars."""
        if self.type is None:
            return {"type": None}
        return {"type": self.type, self.type: _plain_value(self.get())}
