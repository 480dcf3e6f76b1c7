"""`python -m chargehand` is `chargehand`."""

from chargehand.cli.main import run_program

run_program()
