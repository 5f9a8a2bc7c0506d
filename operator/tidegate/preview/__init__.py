"""A cluster in memory under virtual time, in which the operator shows what it would do.

An API server with its objects, Kubernetes' own controllers, a kubelet, and pods that speak the drain contract. The
tests' simulation adds faults, clients and people to the same cluster.
"""
