"""A real engine behind the gateway, and the real client libraries that people call it with."""

from dataclasses import dataclass

from .kube import Object
from .load import Load
from .service import Service

ENGINE = "tidegate-engine"
SCRATCH = "/scratch"


class EngineService(Service):
    """An LLMService around an unmodified llama.cpp server, which knows nothing of Tidegate."""

    def manifest(self) -> Object:
        manifest = super().manifest()
        spec = manifest["spec"]
        server = {
            "name": "server",
            "image": f"{ENGINE}:{self.tag}",
            "imagePullPolicy": "IfNotPresent",
            "args": ["--port", "8080"],
            "env": [{"name": "TMPDIR", "value": SCRATCH}],
            "ports": [{"name": "http", "containerPort": 8080}],
            # Held back, so that an answer takes seconds, and one engine does not take the machine from the others.
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "250m"}},
            "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
        }
        spec["template"] = {
            "metadata": {"labels": {"app": "llama"}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [server],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
        }
        spec["engine"] = "LlamaCpp"
        spec["drain"].pop("native")
        spec["drain"]["mode"] = "Gateway"
        return manifest


@dataclass(slots=True)
class Clients(Load):
    """`streams` answers at once of each of openai, its async twin and LangChain, each as long as `tokens` says."""

    streams: int = 2
    tokens: str = "100-400"

    def container(self, urls: tuple[str, ...], out: str) -> Object:
        (url,) = urls
        arguments = ["--url", url, "--streams", str(self.streams), "--tokens", self.tokens, "--out", out, *self.options]
        return {"image": f"{ENGINE}:v1", "command": ["python", "-m", "engine.clients", *arguments]}
