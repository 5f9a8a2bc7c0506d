"""Figures of the gateway beside other proxies: see `dev/bench-gateway --help`."""
