"""`python -m sluicegate`."""

from sluicegate.cli import main

main(prog_name="sluicegate")
