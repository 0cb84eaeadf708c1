"""The launchers of several machines, started alike, agree on one cluster."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from orbit_runner.distribute.cluster.addresses import split_address
from orbit_runner.launch.exit_status import LOST, Ending
from orbit_runner.launch.gathering import Gathered, addresses_for, merged
from orbit_runner.launch.hub import Hub
from orbit_runner.launch.log_multiplexer import Screen
from orbit_runner.launch.wire import Line, Message, ending_message, ending_of

_PAUSE_SECONDS, _SILENCE_SECONDS, _CONNECT_SECONDS = 0.1, 2.0, 5.0


class Rendezvous:
    """One launcher's view of all; machine 0 talks to its own hub as the others do."""

    def __init__(
        self,
        address: str,
        *,
        node: int,
        nodes: int,
        counts: Mapping[str, int],
        shared: Mapping[str, Any],
        screen: Screen,
        host: str = "",
        timeout: float = 300.0,
    ) -> None:
        """Listens, on machine 0; talks to nobody yet.

        Args:
            address: `host:port` of machine 0.
            node: The number of this machine.
            nodes: How many there are.
            counts: Role to the number of members here.
            shared: What this machine decides for all, if it is machine 0.
            screen: Where waiting is shown.
            host: What the others reach this machine by; found out where empty.
            timeout: Seconds to wait for the others.

        Raises:
            RunnerError: The port of machine 0 is in use.
        """
        self._address, self._node, self._nodes = split_address(address), node, nodes
        self._counts, self._shared, self.host = counts, shared, host
        self._screen, self._timeout = screen, timeout
        self._hub = Hub(self._address[1], nodes) if node == 0 else None
        self._line: Line | None = None
        self._inbox: deque[Message] = deque()
        self._round, self._reported = 0, False
        self._known: set[Ending] = set()
        self.over: Ending | None = None
        self._missing = ""
        self.all_done = False

    def gather(self, stop: Callable[[], bool]) -> Gathered | Ending:
        """Makes an offer, and waits for those of all others."""
        self.all_done, self._reported, self._missing = False, False, ""
        self._known.clear()
        begun, offered, said = time.monotonic(), False, ""
        while True:
            if stop():
                return Ending("", LOST, "asked to leave while waiting for the other machines")
            offered = (offered and self._line is not None) or self._offer()
            answer = self._answer()
            if answer is not None:
                return answer
            waited, whom = time.monotonic() - begun, self._missing or "node 0"
            if waited > self._timeout:
                return Ending("", LOST, f"waited {waited:.0f} s, and {whom} did not come")
            if waited > _SILENCE_SECONDS and whom != said:
                self._screen.note(f"waiting up to {self._timeout:.0f} s for {whom}")
                said = whom
            time.sleep(_PAUSE_SECONDS)

    def _offer(self) -> bool:
        if self._line is None and not self._connect():
            return False
        assert self._line is not None
        self._line.send(
            {
                "kind": "offer",
                "node": self._node,
                "nodes": self._nodes,
                "jobs": addresses_for(self.host, self._counts),
                "shared": dict(self._shared),
            }
        )
        return True

    def _connect(self) -> bool:
        host, port = self._address
        here = "127.0.0.1" if self._node == 0 else host
        try:
            talk = socket.create_connection((here, port), _CONNECT_SECONDS)
        except OSError:
            return False
        talk.settimeout(None)
        # The address by which this machine reaches machine 0 is one that machine 0 can reach.
        self.host = self.host or (host if self._node == 0 else talk.getsockname()[0])
        self._line = Line(talk)
        threading.Thread(target=self._read, args=(self._line,), daemon=True).start()
        return True

    def _read(self, line: Line) -> None:
        while (message := line.read()) is not None:
            self._inbox.append(message)
        self._inbox.append({"kind": "hung_up"})

    def _answer(self) -> Gathered | Ending | None:
        while self._inbox:
            message = self._inbox.popleft()
            if message["kind"] == "gathered":
                self._round = int(message["round"])
                offers = {int(node): jobs for node, jobs in message["jobs"].items()}
                return merged(offers, self._node, self._round, message["shared"])
            if message["kind"] == "missing":
                nodes = message["nodes"]
                self._missing = ", ".join(f"node {node}" for node in nodes)
            elif message["kind"] == "hung_up":
                self._hang_up()
            elif message["kind"] == "over":
                self.over = ending_of(message)
        return self.over

    def heard(self) -> Ending | None:
        """Returns news of another machine on which the attempt failed, each once."""
        ending = self._news()
        if ending is not None:
            self._known.add(ending)
        return ending

    def _news(self) -> Ending | None:
        while self._inbox:
            message = self._inbox.popleft()
            if message["kind"] == "all_done":
                self.all_done = True
            elif message["kind"] == "over":
                self.over = ending_of(message)
                return self.over
            elif message["kind"] == "failed" and message["round"] == self._round:
                return ending_of(message)
            elif message["kind"] == "hung_up" and not self.all_done:
                self._hang_up()
                return Ending("node 0", LOST, "the launcher of node 0 is gone")
        return None

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def tell(self, ending: Ending) -> None:
        """Tells the others, once, that this attempt failed here; not what they told themselves."""
        if ending not in self._known:
            self._known.add(ending)
            self._send(
                {"kind": "failed", "round": self._round, **ending_message(ending, self._node)}
            )

    def done(self) -> None:
        """Tells the others, once, that training is done here."""
        if not self._reported:
            self._send({"kind": "done", "round": self._round})
        self._reported = True

    def close(self, ending: Ending | None) -> None:
        """Leaves for good; where not all is well, the others end as this one did."""
        word: Message | None = None
        if ending is not None and self.over is None:
            word = {"kind": "over", **ending_message(ending, self._node)}
            self._send(word)
        self._send({"kind": "bye"})
        if self._hub is not None:
            self._hub.close(word)
        self._hang_up()

    def _send(self, message: Message) -> None:
        if self._line is not None:
            self._line.send(message)
