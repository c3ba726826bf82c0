"""`python -m smoothfbo` is the command `smoothfbo`."""

import sys

from smoothfbo.cli import main

sys.exit(main())
