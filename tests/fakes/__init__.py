"""Stand-ins for what a unit test has no use for."""
