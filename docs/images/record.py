"""Runs the commands of a shell script in a pseudo-terminal and draws what the screen shows as SVG.

python docs/images/record.py docs/images/resume.svg docs/images/resume.sh
"""

import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 104, 40
# Exit codes that a picture may show: the command found a difference; it was killed.
_DIFFERENT = 4
_KILLED = 137


def run(command: str) -> tuple[str, int]:
    """Runs a command in a pseudo-terminal; returns its output and its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp("bash", ["bash", "-o", "pipefail", "-c", f"exec {command}"])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    output = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux raises this when the command has ended.
            break
        if not part:
            break
        output += part
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return output.decode(), 128 - code if code < 0 else code


def screen(output: str) -> str:
    """Returns the final contents of the screen: the last version of each line."""
    lines = [""]
    # A live display moves the cursor up and erases its lines before it writes them again.
    for code in re.split(r"(\r?\n|\r|\x1b\[[0-9]*[AK]|\x1b\[\?25[hl])", output):
        if code.endswith("\n"):
            lines.append("")
        elif code.endswith("A"):
            del lines[-int(code[2:-1] or 1) :]
        elif code.endswith("K"):
            lines[-1] = ""
        elif not code.startswith(("\r", "\x1b[?25")):
            lines[-1] += code
    return "\n".join(lines).strip("\n")


def draw(target: Path, commands: Sequence[str]) -> None:
    """Runs the commands and writes the picture.

    Raises:
        SystemExit: A command fails.
    """
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for command in commands:
        print(f"$ {command}", flush=True)
        output, code = run(command)
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        if text := screen(output):
            console.print(Text.from_ansi(text))
        if code == _KILLED:
            console.print("Killed")
        elif code not in (0, _DIFFERENT):
            raise SystemExit(f"exit code {code}:\n{output}")
    svg = console.export_svg(title="Orbit Runner")
    # The SVG refers to a web font. Replace it with any monospaced font.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    target.write_text(svg.replace("Fira Code", "monospace"), encoding="utf-8")


if __name__ == "__main__":
    script = Path(sys.argv[2]).read_text(encoding="utf-8")
    lines = [line for line in script.splitlines() if line and not line.startswith("#")]
    draw(Path(sys.argv[1]), lines)
