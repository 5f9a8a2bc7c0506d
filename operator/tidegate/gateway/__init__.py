"""The gateway: a streaming HTTP/1.1 relay that counts what is in flight and ends a drain without a reset.

It runs as a sidecar in front of one engine, or alone in front of any OpenAI-compatible server. Nothing here imports
kopf, kubernetes, pydantic or an HTTP client: the image has the standard library, httptools and optionally uvloop.
"""
