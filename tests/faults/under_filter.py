"""Installs the filter, sends its descriptor to the parent, and becomes another program.

Run as a script: `under_filter.py SOCKET COMMAND…`, with the descriptor of a Unix socket.
"""

import os
import socket
import sys

from tests.faults.system_calls import install_filter

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        listener = install_filter()
        socket.send_fds(parent, [b"."], [listener])
        os.close(listener)
    os.execv(sys.argv[2], sys.argv[2:])
