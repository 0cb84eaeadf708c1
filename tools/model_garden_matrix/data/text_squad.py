"""Question-answering data in the JSON format of SQuAD 1.1."""

from __future__ import annotations

import json
from pathlib import Path

from tools.model_garden_matrix.data.text import sentences


def write_squad(path: Path, questions: int = 4) -> str:
    """Writes paragraphs with one question each, and returns the path as a string.

    The answer to each question is a word of the paragraph.
    """
    paragraphs = [_paragraph(number, text) for number, text in enumerate(sentences(questions))]
    data = [{"title": "made up", "paragraphs": paragraphs}]
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    return str(path)


def _paragraph(number: int, text: str) -> dict[str, object]:
    answer = text.split()[2]
    start = len(" ".join(text.split()[:2])) + 1
    question = {
        "id": f"q{number}",
        "question": "what then ?",
        "answers": [{"text": answer, "answer_start": start}],
    }
    return {"context": text, "qas": [question]}
