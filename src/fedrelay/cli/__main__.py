"""`python -m fedrelay.cli` is the same as `fedrelay`."""

import sys

from fedrelay.cli.app import main

sys.exit(main())
