"""The meeting point of launchers, a few threads in the launcher of machine 0."""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import Any

from orbit_runner.distribute.cluster.addresses import listening_socket
from orbit_runner.errors import RunnerError
from orbit_runner.launch.exit_status import LOST, Ending
from orbit_runner.launch.wire import Line, Message, ending_message


class Hub:
    """Collects one offer of each machine, answers all with the whole, and passes news on.

    A round begins when every machine has made its offer. Machines that are started again by
    whatever runs them may come late: their offer waits until the others have noticed.
    """

    def __init__(self, port: int, nodes: int) -> None:
        """Listens.

        Args:
            port: Where.
            nodes: How many machines there are.

        Raises:
            RunnerError: The port is in use.
        """
        try:
            self._socket = listening_socket(port)
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else error.strerror
            raise RunnerError(f"--rendezvous: port {port} of this machine {reason}") from None
        self._nodes, self._lock = nodes, threading.Lock()
        self._lines: dict[int, Line] = {}
        self._offers: dict[int, Message] = {}
        self._done: set[int] = set()
        self._round = 0
        self._last_word: Message | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self, last_word: Message | None) -> None:
        """Stops listening; connections stay until the process ends.

        Args:
            last_word: How machine 0 ended, for the others; None where all is well.
        """
        self._socket.close()
        # Also waits until what a thread is just telling all has been told to the last.
        with self._lock:
            if last_word is not None and self._last_word is None:
                self._last_word = last_word
                self._tell_all(last_word)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                talk, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(Line(talk),), daemon=True).start()

    def _serve(self, line: Line) -> None:
        node: int | None = None
        while (message := line.read()) is not None:
            with self._lock, contextlib.suppress(KeyError, TypeError, ValueError):
                if message["kind"] == "offer":
                    node = self._take_offer(line, message)
                elif node is not None and self._lines.get(node) is line:
                    self._take_news(node, message)
            if message["kind"] == "bye":
                return
        with self._lock:
            if node is not None and self._lines.get(node) is line:
                del self._lines[node]
                self._offers.pop(node, None)
                self._fail(node, Ending("", LOST, "its launcher is gone"))
                self._tell_missing()

    def _take_offer(self, line: Line, offer: Message) -> int | None:
        node, problem = int(offer["node"]), self._problem(line, offer)
        if problem or self._last_word is not None:
            refusal = {"kind": "over", "who": "node 0", "status": 2, "words": problem}
            line.send(self._last_word or refusal)
            return None
        before = self._lines.get(node)
        self._lines[node] = line
        if before not in (None, line):
            self._fail(node, Ending("", LOST, "its launcher was started again"))
        self._offers[node] = offer
        if len(self._offers) == self._nodes:
            self._begin_round()
        else:
            self._tell_missing()
        return node

    def _problem(self, line: Line, offer: Message) -> str:
        node, nodes = int(offer["node"]), offer["nodes"]
        if nodes != self._nodes:
            return f"node {node} has --nnodes={nodes}, and node 0 has --nnodes={self._nodes}"
        if not 0 <= node < nodes:
            return f"--node_rank: got {node}, allowed: 0 to {nodes - 1}"
        if node in self._offers and self._lines.get(node) is not line:
            return f"--node_rank: two launchers say that they are node {node}"
        return ""

    def _begin_round(self) -> None:
        self._round += 1
        self._done = set()
        jobs: dict[str, Any] = {str(node): offer["jobs"] for node, offer in self._offers.items()}
        shared = self._offers[0]["shared"]
        self._offers = {}
        self._tell_all({"kind": "gathered", "round": self._round, "jobs": jobs, "shared": shared})

    def _take_news(self, node: int, message: Message) -> None:
        if message["kind"] == "done" and message["round"] == self._round:
            self._done.add(node)
            if len(self._done) == self._nodes:
                self._tell_all({"kind": "all_done"})
        elif message["kind"] == "failed" and message["round"] == self._round:
            self._pass_on(node, message)
        elif message["kind"] == "over" and self._last_word is None:
            self._last_word = message
            self._tell_all(message, but=node)

    def _fail(self, node: int, ending: Ending) -> None:
        if self._round and len(self._done) < self._nodes and self._last_word is None:
            self._pass_on(node, {"kind": "failed", **ending_message(ending, node)})

    def _pass_on(self, node: int, message: Message) -> None:
        self._tell_all({**message, "round": self._round}, but=node)

    def _tell_missing(self) -> None:
        missing = [node for node in range(self._nodes) if node not in self._offers]
        for node in self._offers:
            self._lines[node].send({"kind": "missing", "nodes": missing})

    def _tell_all(self, message: Message, but: int | None = None) -> None:
        for node, line in self._lines.items():
            if node != but:
                line.send(message)
