"""`python -m fedrelay` is the same as `fedrelay`."""

import sys

from fedrelay.cli.app import main

sys.exit(main())
