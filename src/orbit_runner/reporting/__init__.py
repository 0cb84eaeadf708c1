"""Progress, `run.json`, and what commands show.

Sections (`document.py`), printed (`terminal.py`) or written as a page (`html.py`).
"""
