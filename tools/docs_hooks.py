"""MkDocs hooks that add files outside of docs/, such as README.md, to the site as pages."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/RESULTS.md": "results.md",
}
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


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
        path = (folder / target).resolve()
        if "://" in target or not path.is_relative_to(ROOT):
            return match.group()
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES or name.startswith("docs/"):
            return f"[{text}]({PAGES.get(name, name.removeprefix('docs/'))}{anchor or ''})"
        # For example a directory, which the site does not contain. Broken links are kept.
        return text if path.exists() else match.group()

    return _LINK.sub(link, markdown)
