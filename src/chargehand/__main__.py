"""`python -m chargehand` is `chargehand`."""

import sys

from chargehand.cli.main import main

sys.exit(main())
