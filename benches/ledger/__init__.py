"""How long reports take on a large ledger."""
