"""A run whose data is read in each way is resumed exactly; see also `test_tables.py`.

The batches of every source are in `golden/batches.json`, from step 0 on and from a later one on.
"""

import pytest

from tests.support.samples import members, sample_config
from tests.support.toy import run_and_resume

# Images by index, a window of records, pairs with negatives, and batches of tokens.
_SOURCES = (
    "image_classification-image_folder",
    "image_classification-tfrecord",
    "recommendation-movielens",
    "translation-parallel_text",
)
_MEMBERS = [member for member in members() if member.name in _SOURCES]


@pytest.mark.slow
@pytest.mark.parametrize("member", _MEMBERS, ids=lambda member: member.name)
def test_run_is_resumed_without_excluded_examples(member, tmp_path):
    assert len(_MEMBERS) == len(_SOURCES)
    config = sample_config(member, tmp_path / "data", train_data__exclude="[2, 5]")
    logs = run_and_resume(config, tmp_path, "mirrored2", at=5).logs
    assert logs["validation_examples"] > 0
