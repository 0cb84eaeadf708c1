"""The page of the codes of errors."""

from __future__ import annotations

from orbit_runner.error_codes import CODES

_HEAD = """\
# Errors

Each error has a code, which says what kind of error it is. The texts of errors may change in any
version; scripts can rely on the codes. With `--json`, a command that fails prints one object to
standard output, on one line, besides the text on standard error. With line breaks, it looks so:

```json
{"errors": [{
  "code": "out-of-range",
  "path": "trainer.train_steps",
  "origin": {"label": "digits.yaml", "line": 12},
  "message": "got -1, allowed: at least 0"
}]}
```

| key | |
|---|---|
| `code` | the kind of the error, from the tables below |
| `path` | the setting, flag or argument that it is about, or an empty string |
| `origin` | the file or flag that set it, and the line; `null` if it is not known |
| `message` | the text, without the path |

The errors of the Python API have the attributes `code` and `path`. The
[exit code](configs.md#exit-codes) says which part of the work is done.
"""


def page() -> str:
    """Returns the text of the page."""
    parts = [_HEAD]
    for title, codes in CODES.items():
        rows = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in codes.items())
        parts.append(f"## {title}\n\n| code | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)
