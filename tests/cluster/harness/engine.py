"""A real engine behind the gateway, and the real client libraries that people call it with."""

from dataclasses import dataclass

from .kube import Object
from .load import Load
from .service import Service

ENGINE = "tidegate-engine"
LLAMA_SERVER = "tidegate-llama-server"
SCRATCH = "/scratch"
MODEL = f"{SCRATCH}/tidegate-test.gguf"


class EngineService(Service):
    """An LLMService around an unmodified llama.cpp server, which knows nothing of Tidegate."""

    engine_image = ENGINE
    arguments: tuple[str, ...] = ("--port", "8080")
    before: tuple[Object, ...] = ()
    """Init containers."""

    def manifest(self) -> Object:
        manifest = super().manifest()
        spec = manifest["spec"]
        server = {
            "name": "server",
            "image": f"{self.engine_image}:{self.tag}",
            "imagePullPolicy": "IfNotPresent",
            "args": list(self.arguments),
            "env": [{"name": "TMPDIR", "value": SCRATCH}],
            "ports": [{"name": "http", "containerPort": 8080}],
            # Held back, so that an answer takes seconds, and one engine does not take the machine from the others.
            "resources": {"requests": {"cpu": "25m", "memory": "128Mi"}, "limits": {"cpu": "250m"}},
            "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
        }
        spec["template"] = {
            "metadata": {"labels": {"app": "llama"}},
            "spec": {
                "automountServiceAccountToken": False,
                "initContainers": list(self.before),
                "containers": [server],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            },
        }
        spec["engine"] = "LlamaCpp"
        spec["drain"].pop("native")
        spec["drain"]["mode"] = "Gateway"
        return manifest


class LlamaServerService(EngineService):
    """The same around the `llama-server` program, whose image holds nothing else: the model comes before it starts."""

    engine_image = LLAMA_SERVER
    arguments = (
        *("--model", MODEL, "--host", "0.0.0.0", "--port", "8080"),
        *("--parallel", "4", "--ctx-size", "32768", "--threads", "1"),
    )
    before = (
        {
            "name": "model",
            "image": f"{ENGINE}:v1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["python", "-m", "engine.model", MODEL],
            "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
        },
    )


@dataclass(slots=True)
class Clients(Load):
    """`streams` answers at once of each of openai, its async twin and LangChain, each as long as `tokens` says."""

    streams: int = 2
    tokens: str = "100-400"

    def container(self, urls: tuple[str, ...], out: str) -> Object:
        (url,) = urls
        arguments = ["--url", url, "--streams", str(self.streams), "--tokens", self.tokens, "--out", out, *self.options]
        return {"image": f"{ENGINE}:v1", "command": ["python", "-m", "engine.clients", *arguments]}
