"""The purposes of random draws: draws with different salts are independent."""

from __future__ import annotations

# The order of examples: within an epoch; of blocks of records, and within a window of records; of
# batches of sentence pairs, and within a bucket of pairs.
EXAMPLES = 0x6F72646572
BLOCKS, WINDOWS = 0x626C6F636B, 0x77696E646F77
BATCHES, PAIRS = 0x6261746368, 0x70616972
# Mixtures: the positions of a block, and the examples of a group in one of its passes.
MIXTURE, PASSES = 0x6D697874757265, 0x706173736573
# The augmentation of images.
CROP_FLIP = 0x63726F70
AREA_CROP, FLIP, JITTER, ERASING = 0x696E636570, 0x666C6970, 0x6A6974746572, 0x6572617365
# Mixup and CutMix: whether an image is mixed, whether by CutMix, its share, and the rectangle.
MIXED, CUT, SHARE, ROW, COLUMN = 0x6D697831, 0x6D697832, 0x6D697833, 0x6D697834, 0x6D697835
# Items that a user has not chosen, in training.
NEGATIVES = 0x6E656761746976
