import gzip

import numpy as np
import pytest

from orbit_runner.data import disk_cache
from orbit_runner.data.text import parallel_text
from orbit_runner.data.text.lines import count_lines, read_lines
from orbit_runner.data.text.source import EOS
from orbit_runner.data.text.tokenizer.vocabulary import build_vocabulary
from tests.support.problems import raises
from tests.support.sentences import sentences, write_text

_EN, _DE = sentences(300, seed=1), sentences(300, seed=2)


@pytest.fixture(scope="module")
def vocabulary():
    return build_vocabulary(_EN + _DE, size=200)


pytestmark = pytest.mark.usefixtures("text_cache")


@pytest.fixture
def folder(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


def _load(vocabulary, folder, **settings):
    places = {"split": "train", "data_dir": str(folder), "languages": ("en", "de")}
    limits = {"max_length": 200, "is_training": True}
    for name, value in settings.items():
        (limits if name in limits else places)[name] = value
    sides = parallel_text.find_files(**places)
    return parallel_text.load(*sides, vocabulary=vocabulary, **limits)


def _texts(vocabulary, rows):
    return vocabulary.decode([rows.row(k) for k in range(rows.size)])


@pytest.mark.parametrize("ends", [("", ""), (".gz", ".gz"), ("", ".gz")])
def test_pairs_match_the_lines_of_both_files(vocabulary, folder, ends, capsys):
    write_text(folder / f"train.en{ends[0]}", _EN)
    write_text(folder / f"train.de{ends[1]}", _DE)
    source = _load(vocabulary, folder)
    assert _texts(vocabulary, source.sources) == _EN
    assert _texts(vocabulary, source.targets) == _DE
    assert source.vocab_size == 200
    assert source.references is None
    assert capsys.readouterr().err == ""
    turned = _load(vocabulary, folder, languages=("de", "en"))
    assert _texts(vocabulary, turned.sources) == _DE


def test_files_are_found_by_name_or_pattern(vocabulary, folder):
    for number in range(3):
        part = slice(number * 100, (number + 1) * 100)
        write_text(folder / f"news-{number}.en", _EN[part])
        write_text(folder / f"news-{number}.de.gz", _DE[part])
    source = _load(vocabulary, folder, input_path=("news-*.en", "news-*.de.gz"))
    assert _texts(vocabulary, source.sources) == _EN
    assert _texts(vocabulary, source.targets) == _DE
    paths = (str(folder / "news-1.en"), str(folder / "news-1.de.gz"))
    pairs = _load(vocabulary, folder, data_dir="", input_path=paths)
    assert _texts(vocabulary, pairs.sources) == _EN[100:200]


def test_only_a_line_feed_ends_a_line(folder):
    path = folder / "some"
    path.write_bytes("\ufeffa\u2028b\r\nc\x0bd\x0ce\x85f\rg\n\n\ufeffh".encode())
    assert list(read_lines(path)) == ["a\u2028b", "c\x0bd\x0ce\x85f\rg", "", "\ufeffh"]
    assert count_lines([path])[0] == 4
    path.write_bytes(b"a\nb\n")
    assert count_lines([path, path])[0] == 4


def test_training_skips_and_reports_blank_and_long_pairs(vocabulary, folder, capsys):
    english, german = list(_EN), list(_DE)
    english[7], german[9], german[11], english[11] = "", " \u00a0", "", ""
    english[20] = " ".join(_EN[:10])
    write_text(folder / "train.en", english)
    write_text(folder / "train.de", german)
    source = _load(vocabulary, folder, max_length=60)
    kept = [k for k in range(300) if k not in (7, 9, 11, 20)]
    assert _texts(vocabulary, source.sources) == [_EN[k] for k in kept]
    assert _texts(vocabulary, source.targets) == [_DE[k] for k in kept]
    assert source.left_out == {"with an empty side": 3, "longer than 60 tokens": 1}
    skipped = "skipped: 3 with an empty side and 1 longer than 60 tokens, out of 300 pairs\n"
    assert capsys.readouterr().err == f"parallel_text train.en: {skipped}"


def test_evaluation_keeps_all_pairs_and_full_references(vocabulary, folder, capsys):
    english, german = list(_EN), list(_DE)
    english[7], german[9], german[20] = "", " x  y ", " ".join(_DE[:10])
    write_text(folder / "test.en", english)
    write_text(folder / "test.de", german)
    source = _load(vocabulary, folder, split="test", is_training=False, max_length=60)
    assert source.size == 300
    assert source.references == tuple(german)
    assert source.sources.row(7).tolist() == [EOS]
    reference_ids = vocabulary.encode([german[20]]).row(0)
    assert source.targets.row(20).tolist() == [*reference_ids[:59], EOS]
    assert source.lengths.max() == 60
    assert "truncated: 1 longer than 60 tokens, out of 300 pairs" in capsys.readouterr().err


def _write(folder, english=_EN, german=_DE):
    write_text(folder / "train.en", english)
    write_text(folder / "train.de", german)


def _mangled(folder, content):
    _write(folder)
    (folder / "train.de").write_bytes(content)


_GZIPPED = gzip.compress("\n".join(_DE).encode(), mtime=0)


@pytest.mark.parametrize(
    ("make", "settings", "field", "code"),
    [
        (lambda folder: _write(folder, german=_DE[:-3]), {}, "input_path", "data-mismatch"),
        (lambda folder: _write(folder, german=[]), {}, "input_path", "bad-record"),
        (lambda folder: _mangled(folder, b"a\nb\nc\xc3"), {}, "input_path", "bad-record"),
        (lambda folder: _mangled(folder, _GZIPPED[:-20]), {}, "input_path", "bad-record"),
        (_write, {"split": "val"}, "split", "missing-file"),
        (_write, {"languages": ("", "de")}, "src_lang", "not-set"),
        (_write, {"input_path": ("train.en",)}, "input_path", "not-allowed"),
        (_write, {"input_path": ("train.en", "train.fr*")}, "input_path", "missing-file"),
        (
            lambda folder: _write(folder, _EN[:9], [" ".join(_DE[:9])] * 9),
            {"max_length": 9},
            "max_length",
            "empty-data",
        ),
        (lambda folder: _write(folder, [""] * 4, _DE[:4]), {}, "max_length", "empty-data"),
    ],
)
def test_invalid_parallel_text_or_settings_are_rejected(
    vocabulary, folder, make, settings, field, code
):
    make(folder)
    with raises(code) as caught:
        _load(vocabulary, folder, **settings)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_ids_are_cached_by_text_and_vocabulary(vocabulary, folder, monkeypatch):
    monkeypatch.setattr(disk_cache, "KEPT_SECONDS", -1.0)
    _write(folder)
    first = _load(vocabulary, folder)
    other = build_vocabulary(_EN + _DE, size=180)
    assert len(_load(other, folder).sources.values) != len(first.sources.values)

    def never(*_):
        raise AssertionError("was kept")

    monkeypatch.setattr(type(vocabulary), "encode", never)
    second = _load(vocabulary, folder)
    np.testing.assert_array_equal(second.sources.values, first.sources.values)
    np.testing.assert_array_equal(second.targets.offsets, first.targets.offsets)
    write_text(folder / "train.en", [*_EN[:-1], "other"])
    with pytest.raises(AssertionError, match="was kept"):
        _load(vocabulary, folder)
