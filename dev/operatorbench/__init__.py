"""Figures of the operator on a real cluster, behind `dev/bench-operator`; uses the harness of tests/cluster."""
