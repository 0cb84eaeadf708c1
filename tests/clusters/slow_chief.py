"""A callback that keeps the chief busy after the last step, while the other workers are done."""

import time
from typing import Any

from orbit_runner import Callback


class SlowChief(Callback):
    def on_train_end(self, run: Any) -> None:
        if run.is_chief:
            time.sleep(3.0)
            print("the chief is done", flush=True)
