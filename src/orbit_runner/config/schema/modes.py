"""What a run can do."""

TRAINING = ("train", "train_and_eval", "train_and_post_eval")
EVALUATING = ("eval", "train_and_eval", "continuous_eval", "train_and_post_eval")
MODES = ("train", "eval", "train_and_eval", "continuous_eval", "train_and_post_eval")
