"""What every request cost: rows, sums by day, and how they come from the journal into the database."""

from sluicegate.ledger.ledger import Ledger
from sluicegate.ledger.place import ledger_faults, open_database
from sluicegate.ledger.reports import GROUPS, Line, Period, report
from sluicegate.ledger.row import PICO
from sluicegate.ledger.spent import Spent

__all__ = [
    "GROUPS",
    "PICO",
    "Ledger",
    "Line",
    "Period",
    "Spent",
    "ledger_faults",
    "open_database",
    "report",
]
