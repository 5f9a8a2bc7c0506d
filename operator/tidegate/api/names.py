"""Every label, annotation, environment variable and file name that Tidegate puts into a cluster.

They are all here, so that policies, operator, applications and tests cannot disagree.
"""

from typing import Final

GROUP: Final = "tidegate.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "LLMService"
PLURAL: Final = "llmservices"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Labels. SERVICE and REVISION select; STATE is the state machine of one pod and is in no ReplicaSet selector.
SERVICE: Final = "tidegate.dev/service"
REVISION: Final = "tidegate.dev/revision"
STATE: Final = "tidegate.dev/state"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "tidegate"

# Annotations on pods.
CONTAINER: Final = "tidegate.dev/container"
MESH_EXCLUDED_PORTS: Final = ("traffic.sidecar.istio.io/excludeInboundPorts", "config.linkerd.io/skip-inbound-ports")
"""Annotations of Istio and Linkerd: comma-separated ports that their proxies do not intercept."""
ISTIO_NATIVE: Final = "sidecar.istio.io/nativeSidecar"
ISTIO_CONFIG: Final = "proxy.istio.io/config"
LINKERD_NATIVE: Final = "config.beta.linkerd.io/proxy-enable-native-sidecar"
LINKERD_WAIT: Final = "config.alpha.linkerd.io/proxy-wait-before-exit-seconds"
DRAIN: Final = "tidegate.dev/drain"
OUTCOME: Final = "tidegate.dev/outcome"
RELEASE: Final = "tidegate.dev/release"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
LOWEST_COST: Final = "-2147483648"

# Annotations on Deployments.
REPLICAS: Final = "tidegate.dev/replicas"
RELEASED: Final = "tidegate.dev/released"
SOURCE: Final = "tidegate.dev/source"
RENDERED: Final = "tidegate.dev/rendered"

# Annotation on an LLMService.
DRAIN_UNREACHABLE: Final = "tidegate.dev/drain-unreachable"

# Field managers of server-side apply. SCALE owns only the replicas and the annotations that belong to them, so that a
# template can be applied again without changing the replicas.
FIELD_MANAGER: Final = "tidegate"
FIELD_MANAGER_SCALE: Final = "tidegate-scale"
FIELD_MANAGER_STATUS: Final = "tidegate-status"

# What the operator puts into the serving container.
KEY_HEADER: Final = "Tidegate-Key"
KEY_DIR: Final = "/var/run/tidegate/drain"
KEY_VOLUME: Final = "tidegate-drain"
ENV_KEY_DIR: Final = "TIDEGATE_KEY_DIR"
ENV_PRESTOP_KEY: Final = "TIDEGATE_PRESTOP_KEY"
ENV_GRACE: Final = "TIDEGATE_GRACE_SECONDS"
ENV_PROPAGATION: Final = "TIDEGATE_PROPAGATION_SECONDS"
ENV_QUIET: Final = "TIDEGATE_QUIET_SECONDS"
ENV_FLUSH: Final = "TIDEGATE_FLUSH_SECONDS"
ENV_STALLED_AFTER: Final = "TIDEGATE_STALLED_AFTER_SECONDS"

# The gateway's container, and its environment variables besides those of the contract.
GATEWAY: Final = "tidegate-gateway"
GATEWAY_IMAGE: Final = "tidegate-gateway:dev"
GATEWAY_PORT: Final = 9900
GATEWAY_ADMIN: Final = "tidegate-admin"
GATEWAY_ENV_LISTEN: Final = "TIDEGATE_LISTEN"
GATEWAY_ENV_UPSTREAM: Final = "TIDEGATE_UPSTREAM"
GATEWAY_ENV_ADMIN: Final = "TIDEGATE_ADMIN"
GATEWAY_ENV_ENGINE: Final = "TIDEGATE_ENGINE"
GATEWAY_ENV_READY_PATH: Final = "TIDEGATE_READY_PATH"
GATEWAY_ENV_WARMUP_PATH: Final = "TIDEGATE_WARMUP_PATH"
GATEWAY_ENV_WARMUP_BODY: Final = "TIDEGATE_WARMUP_BODY"
GATEWAY_ENV_CONNECT: Final = "TIDEGATE_CONNECT_SECONDS"
GATEWAY_ENV_IDLE: Final = "TIDEGATE_IDLE_SECONDS"
GATEWAY_ENV_TOTAL: Final = "TIDEGATE_TOTAL_SECONDS"
GATEWAY_ENV_KEEP_ALIVE: Final = "TIDEGATE_KEEP_ALIVE_SECONDS"
GATEWAY_ENV_ROUTES: Final = "TIDEGATE_ROUTES"

CONTRACT_PORT: Final = 9901
DRAIN_PATH: Final = "/drain"
PRESTOP_PATH: Final = "/drain/prestop"
PRESTOP_OTHER: Final = "/drain/prestop?container=other"
"""The preStop hook of the other containers in a pod with a gateway. It only waits; it does not withdraw the pod."""
READY_PATH: Final = "/readyz"
LIVE_PATH: Final = "/livez"
