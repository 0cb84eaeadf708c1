"""MkDocs hooks: the reference is written, files outside of docs/ are pages, words do not break."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
}
_PRE = re.compile(r"(<pre.*?</pre>)", re.S)
_CODE = re.compile(r"(<code[^>]*>)([^<]*)(</code>)")
_LONGEST_WORD = 36  # characters of code that fit into a line of a phone
_IMAGE = r"!\[[^\[\]]*\]\([^)\s]*\)"
_LINK = re.compile(rf"\[((?:{_IMAGE}|[^\[\]])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_pre_build(config: MkDocsConfig) -> None:
    """Writes the pages that are made from the code, in a process without the plugins of MkDocs."""
    subprocess.run([sys.executable, "-m", "tools.reference"], cwd=ROOT, check=True)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files as pages."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Converts links between files of the repository to links between pages of the site."""
    page_of = {path: source for source, path in PAGES.items()}
    source = page_of.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = (ROOT / source).parent

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        text = _LINK.sub(link, text)  # an image that is a link
        path = (folder / target).resolve()
        if "://" in target or not path.is_relative_to(ROOT):
            return match.group()
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES or name.startswith("docs/"):
            return f"[{text}]({PAGES.get(name, name.removeprefix('docs/'))}{anchor or ''})"
        # For example a directory, which the site does not contain. Broken links are kept.
        return text if path.exists() else match.group()

    return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks the words of inline code, which browsers otherwise break at hyphens and slashes."""
    for item in page.toc:
        _break_at_dots(item)
    parts = _PRE.split(html)
    return "".join(
        part if part.startswith("<pre") else _CODE.sub(_mark_words, part) for part in parts
    )


def _break_at_dots(item: AnchorLink) -> None:
    title = re.sub(r"\.|(?<=\w{16})_", r"\g<0><wbr>", item.title)
    item.title = re.sub(r"(?<!\S)--\S+", r'<span class="word">\g<0></span>', title)
    for child in item.children:
        _break_at_dots(child)


def _mark_words(match: re.Match[str]) -> str:
    return match[1] + " ".join(_mark_word(word) for word in match[2].split(" ")) + match[3]


def _mark_word(word: str) -> str:
    if len(word) > _LONGEST_WORD:
        return re.sub(r"(?<=\w)([./=])(?=\w)", r"\1<wbr>", word)
    return f'<span class="word">{word}</span>' if re.search(r"[-/?]", word) else word
