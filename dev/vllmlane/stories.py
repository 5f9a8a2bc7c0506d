"""What real clients see when the gateway before vLLM is drained."""

from __future__ import annotations

import asyncio
from typing import Any

from .site import MODEL, Site, until

CLIENTS = 6


class BrokenPromise(Exception):
    """A story did not come out as promised; the text is what was seen instead."""


async def waits_for_every_stream(site: Site) -> str:
    """A drain without a deadline: every answer is whole, late ones are served, the next are refused, vLLM is idle."""
    streams = _begin(site, 600)
    await _busy(site)
    await asyncio.to_thread(site.drain, "POST", "", {"id": "one", "reason": "Rollout"})
    late = await _ask(site, 20, chat=True)
    seen = [await stream for stream in streams]
    whole = [s for s in seen if (s["finish"], s["usage"], s["error"]) == ("length", 600, None)]
    _expect(len(whole) == CLIENTS, seen)
    _expect((late["finish"], late["usage"]) == ("length", 20), late)
    await asyncio.to_thread(until, "sealed", lambda: site.drain("GET")["state"] == "sealed")
    state = await asyncio.to_thread(site.drain, "GET")
    _expect((state["cut"], state["inFlight"]) == (0, 0), state)
    refused = await _ask(site, 5, chat=False)
    _expect(refused.get("status") == 503, refused)
    running = await asyncio.to_thread(site.running)
    _expect(running == 0, f"vLLM runs {running} requests")
    return (
        f"{CLIENTS} of {CLIENTS} whole by usage and `finish_reason: length`, a late one too; then 503; cut 0; vLLM idle"
    )


async def tells_whom_it_cuts(site: Site) -> str:
    """A budget that is too short: each client raises its own error with the token, and vLLM is told to stop."""
    streams = _begin(site, 6000)
    await _busy(site)
    order = {"id": "two", "reason": "Rollout", "remainingSeconds": 4, "flushSeconds": 1, "propagationSeconds": 0}
    await asyncio.to_thread(site.drain, "POST", "", order)
    seen = [await stream for stream in streams]
    for one in seen:
        _expect((one["error"], one["finish"]) == ("APIError", None), one)
        _expect(one["token"]["type"] == "shutdown" and one["token"]["generatedTokens"] > 0, one)
    state = await asyncio.to_thread(site.drain, "GET")
    _expect(state["cut"] == CLIENTS, state)
    await asyncio.to_thread(until, "vLLM has stopped", lambda: site.running() == 0)
    return f"{CLIENTS} of {CLIENTS} raised `APIError` with the token and its count; cut {CLIENTS}; vLLM stopped all"


STORIES = (waits_for_every_stream, tells_whom_it_cuts)


def _expect(kept: bool, seen: object) -> None:
    if not kept:
        raise BrokenPromise(str(seen))


async def _ask(site: Site, tokens: int, *, chat: bool) -> dict[str, Any]:
    """One stream by the real client: how it ended, and what it counted."""
    import openai  # type: ignore[import-not-found]

    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{site.front}/v1", api_key="none", max_retries=0)
    seen: dict[str, Any] = {"pieces": 0, "finish": None, "usage": None, "error": None}
    common = {
        "model": MODEL, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True},
        "extra_body": {"ignore_eos": True, "min_tokens": tokens},
    }  # fmt: skip
    try:
        if chat:
            stream = await client.chat.completions.create(messages=[{"role": "user", "content": "a b"}], **common)
        else:
            stream = await client.completions.create(prompt="a b c", **common)
        async for part in stream:
            seen["pieces"] += 1
            if part.usage is not None:
                seen["usage"] = part.usage.completion_tokens
            if part.choices and part.choices[0].finish_reason:
                seen["finish"] = part.choices[0].finish_reason
    except openai.APIStatusError as error:
        seen["error"], seen["status"] = "APIStatusError", error.status_code
    except openai.APIError as error:
        seen["error"], seen["token"] = type(error).__name__, error.body
    finally:
        await client.close()
    return seen


def _begin(site: Site, tokens: int) -> list[asyncio.Task[dict[str, Any]]]:
    return [asyncio.create_task(_ask(site, tokens, chat=bool(n % 2))) for n in range(CLIENTS)]


async def _busy(site: Site) -> None:
    await asyncio.to_thread(until, f"{CLIENTS} streams run", lambda: site.drain("GET")["streams"] == CLIENTS)
    await asyncio.sleep(0.5)
