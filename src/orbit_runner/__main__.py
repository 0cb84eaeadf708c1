"""`python -m orbit_runner` is `runner`."""

import sys

from orbit_runner.cli.main import main

sys.exit(main())
