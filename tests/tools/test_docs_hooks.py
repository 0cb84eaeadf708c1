"""Links lead to pages of the site."""

from __future__ import annotations

import types

import pytest

pytest.importorskip("mkdocs")

from tools.docs_hooks import on_page_markdown


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("index.md", "[runs](docs/runs.md#report)", "[runs](runs.md#report)"),
        ("index.md", "[changes](CHANGELOG.md)", "[changes](changelog.md)"),
        ("index.md", "[configs](configs)", "configs"),
        (
            "index.md",
            "[![a report](docs/images/report.png)](docs/runs.md)",
            "[![a report](images/report.png)](runs.md)",
        ),
        ("runs.md", "[start](../README.md), [api](api.md)", "[start](index.md), [api](api.md)"),
        ("runs.md", "[other](https://example.org/a.md)", "[other](https://example.org/a.md)"),
        ("runs.md", "[missing](missing)", "[missing](missing)"),
    ],
)
def test_links_lead_to_pages_of_the_site(source, text, expected):
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=source))

    assert on_page_markdown(text, page, None, None) == expected
