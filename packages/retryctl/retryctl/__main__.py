"""`python -m retryctl`."""

import sys

from retryctl.cli import main

sys.exit(main())
