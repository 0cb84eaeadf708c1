"""The version of the package; modules import it from here, without the public API."""

__version__ = "0.1.0"
