"""Runs a command in a pseudo-terminal and draws the final contents of the screen as SVG.

python docs/images/record.py docs/images/run.svg runner --experiment=digits
"""

import io
import os
import pty
import re
import shlex
import struct
import sys
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 108, 40


def recorded(command: list[str]) -> str:
    """Runs a command in a pseudo-terminal and returns its output."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    written = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux raises this when the command has ended.
            break
        if not part:
            break
        written += part
    os.waitpid(child, 0)
    return written.decode()


def screen(written: str) -> str:
    """Returns the final contents of the screen: the last version of each line."""
    lines = [""]
    # A live display moves the cursor up and erases its lines before it writes them again.
    for code in re.split(r"(\r?\n|\r|\x1b\[[0-9]*[AK]|\x1b\[\?25[hl])", written):
        if code.endswith("\n"):
            lines.append("")
        elif code.endswith("A"):
            del lines[-int(code[2:-1] or 1) :]
        elif code.endswith("K"):
            lines[-1] = ""
        elif not code.startswith(("\r", "\x1b[?25")):
            lines[-1] += code
    return "\n".join(lines).strip("\n")


def main(target: Path, command: list[str]) -> None:
    """Writes the image."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), shlex.join(command)))
    console.print(Text.from_ansi(screen(recorded(command))))
    svg = console.export_svg(title="Orbit Runner")
    # The SVG refers to a web font. Replace it with any monospaced font.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    target.write_text(svg.replace("Fira Code", "monospace"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
