"""Measures whole gateways side by side: CPU, latency and memory for the same work, every event verified."""
