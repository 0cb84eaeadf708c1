"""Messages for network errors."""

from __future__ import annotations

import socket
import ssl
import urllib.error

from orbit_runner.datasets.download.errors import Dropped, Unavailable

# Timeouts, too many requests, and temporary server errors.
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_ACCOUNT = (401, 403, 407)


class Unreachable(Dropped):
    """No connection was established; worth a retry only if there was one before."""


def translate_error(error: Exception) -> Dropped | Unavailable:
    """Returns the error to raise for one of urllib: `Dropped` if a retry may help."""
    if isinstance(error, urllib.error.HTTPError):
        return _describe_status(error)
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unavailable(f"its certificate is not trusted ({cause.verify_message})")
    if isinstance(cause, socket.gaierror):
        return Unreachable(f"cannot resolve the host name ({cause.strerror})")
    if isinstance(cause, ConnectionRefusedError):
        return Unreachable("the connection was refused")
    if isinstance(cause, TimeoutError):
        return Unreachable("the host does not respond")
    if isinstance(cause, ValueError):
        return Unavailable(f"not a valid URL ({cause})")
    return Unreachable(f"cannot connect ({cause or type(cause).__name__})")


def _describe_status(error: urllib.error.HTTPError) -> Dropped | Unavailable:
    status = f"the server returned {error.code} {error.reason}".rstrip()
    if error.code == 416:
        return Dropped(status)
    if error.code in _PASSING:
        return Dropped(status)
    if error.code in _ACCOUNT:
        return Unavailable(f"{status}: the server or a proxy requires a login")
    return Unavailable(status)
