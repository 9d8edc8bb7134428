//! Upstream connections, deadlines and the pump: everything of sluicegate that waits. Knows the core, knows no Python.
