"""The addresses of a local cluster, all in a network namespace of its own: clusters side by side use the same ones."""

NODE_ADDRESS = "10.200.0.1"
"""Of every node: they differ by port."""
NOWHERE = "10.200.255.254"
"""The default gateway. Nobody is there, so that what would leave the cluster ends here."""
API_SERVER = f"https://{NODE_ADDRESS}:6443"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""Of the Service `kubernetes`: the first address of SERVICE_NETWORK."""
DNS_SERVICE = "10.96.0.10"
POD_NETWORK = "10.244.0.0/16"


def pod_subnet(node: int) -> str:
    """The part of POD_NETWORK for the pods of node number `node`, from 1."""
    return f"10.244.{node}.0/24"
