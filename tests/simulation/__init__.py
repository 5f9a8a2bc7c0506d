"""An in-memory Kubernetes with virtual time, in which the operator's real code runs; see `world.World`."""
