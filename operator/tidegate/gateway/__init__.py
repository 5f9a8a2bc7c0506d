"""The gateway: a streaming HTTP/1.1 relay that counts what is in flight and ends a drain without a reset.

It runs as a sidecar in front of one engine, or alone in front of any OpenAI-compatible server. Nothing here imports
kopf, kubernetes, pydantic or an HTTP client: the image has the standard library, httptools and optionally uvloop.

Imports lead downwards only, and a field is written by the class that has it (`response` notes the progress of a request
in the contract's record of it as well):

    process             ports, signals, exit
    admin               the admin port: drain contract, probes, metrics
    gateway             builds the parts, admits requests
    connection          a client's connection; request_heads, reading
    exchange            one request: decides what follows from what its parts report
    timers              what is due for it when nothing happens
    response            from the engine to the client; bodies, sse, framing, tunnel, websocket, dialects
    upstream_request    from the client to the engine; upstream has the connections
    shared              what all requests share: draining (the drain contract in this process), engine, keys, metrics
    client, clock       the protocol of a client's connection; the time
"""
