"""Links lead to pages of the site, and its words of code do not break."""

from __future__ import annotations

import types

import pytest

pytest.importorskip("mkdocs")

from mkdocs.structure.toc import AnchorLink

from tools.docs_hooks import on_page_content, on_page_markdown

LONG = "trainer.optimizer_config.learning_rate.constant.learning_rate"


def marked(html: str, titles: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """Returns the HTML and the titles of the table of contents."""
    toc = [AnchorLink(title, title, 2) for title in titles]
    page = types.SimpleNamespace(toc=toc)
    text = on_page_content(html, page, None, None)  # type: ignore[arg-type]
    return text, [item.title for item in toc]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<code>runner --quiet</code>", '<code>runner <span class="word">--quiet</span></code>'),
        ("<code>name</code>, a-b", "<code>name</code>, a-b"),
        (f"<code>{LONG}</code>", f"<code>{LONG.replace('.', '.<wbr>')}</code>"),
        ("<pre><code>a --b</code></pre>", "<pre><code>a --b</code></pre>"),
    ],
)
def test_words_of_inline_code_break_at_dots_only(html: str, expected: str) -> None:
    assert marked(html)[0] == expected


def test_titles_break_at_dots_and_long_names_at_underscores() -> None:
    long = "task.differential_privacy_config"

    assert marked("", ("task.model", long))[1] == [
        "task.<wbr>model",
        "task.<wbr>differential_privacy_<wbr>config",
    ]


def test_flags_in_titles_do_not_break() -> None:
    titles = marked("", ("runner data get --dir=DIR", "before--after"))[1]

    assert titles == [
        'runner data get <span class="word">--dir=DIR</span>',
        "before--after",
    ]


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
        ("runs.md", "[start](../README.md), [data](data.md)", "[start](index.md), [data](data.md)"),
        ("runs.md", "[other](https://example.org/a.md)", "[other](https://example.org/a.md)"),
        ("runs.md", "[missing](missing)", "[missing](missing)"),
    ],
)
def test_links_lead_to_pages_of_the_site(source: str, text: str, expected: str) -> None:
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=source))

    assert on_page_markdown(text, page, None, None) == expected  # type: ignore[arg-type]
