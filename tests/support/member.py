"""A member of a cluster that only does what a test says: run as a process, without tensorflow.

`plan.json` lists the statements that each life executes, which use the names below; the last entry
is repeated for all further lives.
"""

import json
import os
import signal
import sys
import time

exit = sys.exit  # `python -S` lacks it
FOLDER = sys.argv[1]
ME = sys.argv[2]

WORKERS = ("worker 0", "worker 1")
SERVERS = (*WORKERS, "ps 0")


def lives(name: str) -> list[dict]:
    try:
        with open(f"{FOLDER}/{name}.lives") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def state(name: str) -> str:
    """The letter of /proc: T for a stopped process, "" for one that has ended."""
    there = lives(name)
    if not there:
        return "?"
    try:
        with open(f"/proc/{there[-1]['pid']}/stat") as file:
            return file.read().rpartition(")")[2].split()[0].replace("Z", "")
    except OSError:
        return ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def notice(name: str, code: int = 138, after: float = 0.0) -> None:
    """Exits like a member that finds another one ended or silent."""
    while state(name) not in ("", "T"):
        time.sleep(0.02)
    time.sleep(after)
    say(f"{name} is gone")
    sys.exit(code)


def wait_lives(number: int, *names: str) -> None:
    """Waits until other members have begun the given number of lives."""
    while any(len(lives(name)) < number for name in names):
        time.sleep(0.02)


def save_when_asked(after: float = 0.0) -> None:
    """Waits for a signal, and exits like a member that has saved."""
    numbers = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: numbers.append(number))
    with open(f"{FOLDER}/{ME}.waits", "a") as file:
        file.write("waits\n")
    while not numbers:
        time.sleep(0.02)
    time.sleep(after)
    say(f"saved, told {len(numbers)} times")
    sys.exit(128 + numbers[0])


def die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def serve() -> None:
    time.sleep(600)


def deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with open(f"{FOLDER}/{ME}.waits", "a") as file:
        file.write("waits\n")
    time.sleep(600)


def main() -> None:
    with open(f"{FOLDER}/plan.json") as file:
        plan = json.load(file)[ME]
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    with open(f"{FOLDER}/{ME}.lives", "a") as file:
        file.write(json.dumps({"pid": os.getpid(), "tf_config": config}) + "\n")
    life = len(lives(ME))
    exec(plan[min(life, len(plan)) - 1], globals())


main()
