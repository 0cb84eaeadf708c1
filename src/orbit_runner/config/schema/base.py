"""The base of every config class, and the declaration of its settings."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

_UNSET: Any = dataclasses.MISSING
# Of settings without a maximum of their own: TensorFlow keeps sizes in 32 bits in many places, and
# weights and rates in float32.
INT_MAX, FLOAT_MAX = 2**31 - 1, 3.4e38


def field(
    default: Any = _UNSET,
    *,
    factory: Callable[[], Any] = _UNSET,
    help: str,
    allowed: tuple[Any, ...] = (),
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    unsupported: str = "",
    ignored: str = "",
    lowercase: bool = False,
    formerly: str = "",
    variants: Any = None,
    exclusive_with: str = "",
    subdirectory: bool = False,
    holds_at_zero: bool = False,
) -> Any:
    """Declares one setting of a config class.

    Args:
        default: The value where none is given.
        factory: Makes the default where it is a section.
        help: What the setting does, in one line.
        allowed: The values there are; empty for any of the type.
        ge: The smallest number allowed; of a list, in each of its items.
        gt: A number that the value has to exceed.
        le: The largest number allowed; `INT_MAX` or `FLOAT_MAX` where none is given. A number
            is never infinite.
        lt: A number that the value has to stay under.
        unsupported: Why no value but the default is accepted. For settings of Model Garden that
            have no meaning here: they load at their default, and say why otherwise.
        ignored: Why a value other than the default does nothing. It is an error in our own
            experiments and a note in those of Model Garden, whose files are to load unchanged.
        lowercase: Whether upper and lower case mean the same; the value is kept in lower case.
        formerly: What older drivers took here; errors of the setting end with it.
        variants: A `Registry` whose entry named by the section's `name` key gives the section's
            class.
        exclusive_with: A setting of the same section that says the same in other words; the one
            that a higher layer sets holds.
        holds_at_zero: Whether 0 is a value that holds against `exclusive_with`, and not "unset".
        subdirectory: Whether a directory below another one is named after the text, so that it
            may not lead elsewhere.

    Returns:
        A dataclass field.
    """
    metadata = {
        "help": help,
        "allowed": allowed,
        "ge": ge,
        "gt": gt,
        "le": le,
        "lt": lt,
        "unsupported": unsupported,
        "ignored": ignored,
        "lowercase": lowercase,
        "formerly": formerly,
        "variants": variants,
        "exclusive_with": exclusive_with,
        "subdirectory": subdirectory,
        "holds_at_zero": holds_at_zero,
    }
    return dataclasses.field(default=default, default_factory=factory, metadata=metadata)


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A frozen section of the tree.

    `as_dict` and `replace` have the meaning that they have in Model Garden's configs, so its
    factories accept these.
    """

    # Sections that need to be finished only for training, and are checked before that.
    checked_later: ClassVar[tuple[str, ...]] = ()
    # In a list of sections, the setting that a text stands for; "" where only a section will do.
    shorthand: ClassVar[str] = ""

    def as_dict(self) -> dict[str, Any]:
        """Returns the section as nested dicts, lists and scalars."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for what the types alone cannot tell."""
        yield from ()

    def inert(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings that do nothing beside the others.

        Errors in our own experiments, notes in those of Model Garden.
        """
        yield from ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneOf(Config):
    """A section that holds one block for each choice; `type` names the block in use.

    Blocks that are not chosen are checked like the others, then left at their defaults.
    """

    required: ClassVar[bool] = False
    # Blocks that files may hold and that cannot be chosen: name to the reason.
    unavailable: ClassVar[Mapping[str, str]] = types.MappingProxyType({})
    type: str | None = field(None, help="the block below that is used")

    @classmethod
    def choices(cls) -> tuple[str, ...]:
        """Returns the names of the blocks."""
        return tuple(f.name for f in dataclasses.fields(cls) if f.name != "type")

    @classmethod
    def available(cls) -> tuple[str, ...]:
        """Returns the names of the blocks that can be chosen."""
        return tuple(name for name in cls.choices() if name not in cls.unavailable)

    def get(self) -> Any:
        """Returns the chosen block, or None where nothing is chosen."""
        return None if self.type is None else getattr(self, self.type)

    def __eq__(self, other: object) -> bool:
        """Compares what is chosen; what the other blocks hold is never used."""
        if type(self) is not type(other) or not isinstance(other, OneOf):
            return NotImplemented
        return self.type == other.type and self.get() == other.get()

    def as_dict(self) -> dict[str, Any]:
        """Returns the type and the chosen block."""
        if self.type is None:
            return {"type": None}
        return {"type": self.type, self.type: _plain(self.get())}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields what is wrong with the choice."""
        if self.type is None and self.required:
            yield "type", f"nothing is chosen\nallowed: {', '.join(self.available())}"
        if self.type is not None and self.type in self.unavailable:
            reason = self.unavailable[self.type]
            yield "type", f"got {self.type!r}: {reason}\nallowed: {', '.join(self.available())}"
