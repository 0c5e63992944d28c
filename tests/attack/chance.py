"""Stops a watched run at random moments: for images, since operations of the JVM are not seen by Python's audit events,
or to see whether it stands being stopped and continued."""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from attack import hook

if __name__ == "__main__":
    control = Path(sys.argv[1])
    dice = random.Random(os.getpid())
    number = 0
    while True:
        time.sleep(dice.uniform(0.02, 0.15))
        number += 1
        orders = json.loads((control / "orders.json").read_text())
        if not orders.get("images") and not orders.get("pause"):
            break
        with open(control / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if orders.get("images"):
                hook.take_image(orders, 900_000 + number, "at random")
            else:
                with hook.everybody_stopped(orders["pid"]):
                    time.sleep(dice.uniform(0.0, 0.2))
