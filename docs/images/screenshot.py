"""Takes a picture of the top of an HTML page, with Chromium.

python docs/images/screenshot.py runs/a/report.html docs/images/report.png 1150

The picture ends in the last gap between two parts of the page, so that none of them is cut.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

BROWSER = "chromium"
WIDTH, HEIGHT = 1100, 1400
COLORS = 256
_LEAST_GAP = 16  # Rows without contents; the lines of a text have fewer between them.


def main(page: Path, target: Path, height: int = HEIGHT) -> None:
    """Writes a picture of at most `height` pixels, with few colors, so that it stays small."""
    with tempfile.TemporaryDirectory() as directory:
        picture = Path(directory, "page.png")
        subprocess.run(
            [
                *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                f"--window-size={WIDTH},{height}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        image = Image.open(picture).convert("RGB")
    image = image.crop((0, 0, WIDTH, _end(image)))
    # Without further iterations, rare colors, such as those of curves, are replaced by others.
    image.quantize(COLORS, kmeans=5).save(target, optimize=True)


def _end(image: Image.Image) -> int:
    """Returns the row in which a picture ends: a gap's width below the contents above a gap."""
    empty = 0
    for row in reversed(range(image.height)):
        colors = image.crop((0, row, image.width, row + 1)).getcolors(1)
        empty = empty + 1 if colors else 0
        if empty == _LEAST_GAP:
            # Further empty rows, as at the end of a short page, are left out.
            while row and image.crop((0, row - 1, image.width, row)).getcolors(1):
                row -= 1
            return row + _LEAST_GAP
    return image.height


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
