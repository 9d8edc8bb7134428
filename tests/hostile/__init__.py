"""Hostile clients and upstreams, each among twenty honest streams of the same gateway."""
