"""What every request cost: rows, sums by day, and how they come from the journal into the database."""

from sluicegate.ledger.ledger import Ledger
from sluicegate.ledger.place import ledger_faults, open_database
from sluicegate.ledger.reports import GROUPS, Line, Period, TooManyLines, report
from sluicegate.ledger.rows import newest, row_with
from sluicegate.ledger.schema import PICO
from sluicegate.ledger.spent import Spent, Whose

__all__ = [
    "GROUPS",
    "PICO",
    "Ledger",
    "Line",
    "Period",
    "Spent",
    "TooManyLines",
    "Whose",
    "ledger_faults",
    "newest",
    "open_database",
    "report",
    "row_with",
]
