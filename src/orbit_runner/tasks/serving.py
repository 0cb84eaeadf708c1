"""What a task gives to those who use its model: signatures to export, and answers to files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

# What a plain `model.signatures["serving_default"]` stands for.
DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Serving:
    """A model as it is served.

    Attributes:
        signatures: `tf.function`s by name, each with an `input_signature` and a dict of tensors as
            its result. They use ops of plain tensorflow only.
        default: The one that is `serving_default` as well.
        resources: What else they need, to be saved with them: lookup tables, assets.
    """

    signatures: Mapping[str, Any]
    default: str
    resources: Sequence[Any] = ()


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The answer to one item.

    Attributes:
        text: As a person reads it, one line or several.
        data: As a machine reads it; only what JSON has.
    """

    text: str
    data: Mapping[str, Any]


class Predictor(Protocol):
    """Answers what a user asks, from the signatures of a model in memory or of an exported one."""

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[Any]:
        """Finds what is asked.

        Args:
            arguments: What stands on the command line: files, folders, names.
            lines: Standard input; read only where an argument is `-`, or there is none.

        Yields:
            The items, in order, as they are read.

        Raises:
            RunnerError: An argument is nothing that can be asked.
        """
        ...

    def predict(self, items: Sequence[Any]) -> list[Prediction]:
        """Answers one batch.

        Args:
            items: At most as many as a batch has.

        Returns:
            An answer for each, in the same order; where an item cannot be answered, one that says
            so, with the key `error` in its data.
        """
        ...
