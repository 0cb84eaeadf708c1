"""Names of types that annotations all over the package share."""

from typing import Any, TypeAlias

# A tensor, or a dictionary, list or tuple of tensors, nested as deep as the model takes them.
# TensorFlow has no types that a checker knows.
Tensors: TypeAlias = Any

# What `json.loads` and `yaml.safe_load` return for a mapping.
JsonObject: TypeAlias = dict[str, Any]
