"""The queue of keys: one worker per key, nothing forgotten, nothing hurried."""

import asyncio

import pytest

from tidegate.controller.queue import FIRST_BACKOFF, LONGEST_BACKOFF, KeyedQueue
from wiring.scripted_pod import virtual


def time() -> float:
    return asyncio.get_running_loop().time()


async def taken_within(queue: KeyedQueue, seconds: float) -> str | None:
    try:
        async with asyncio.timeout(seconds):
            return await queue.take()
    except TimeoutError:
        return None


@virtual
async def test_keys_come_in_the_order_in_which_they_were_added_and_each_once():
    queue = KeyedQueue()
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert [await queue.take() for _ in range(3)] == ["a", "b", "c"]
    assert await taken_within(queue, 100) is None


@virtual
async def test_a_key_that_is_worked_on_is_given_to_nobody_else_and_comes_again_afterwards():
    queue = KeyedQueue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert await taken_within(queue, 100) is None
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert await taken_within(queue, 100) is None


@virtual
async def test_a_wish_for_later_that_falls_due_while_the_key_is_worked_on_is_not_lost():
    queue = KeyedQueue()
    queue.add("a")
    await queue.take()
    queue.add_after("a", 5)
    assert await taken_within(queue, 10) is None
    queue.done("a")
    assert await taken_within(queue, 0.1) == "a"


@virtual
async def test_of_two_wishes_for_later_the_earliest_wins_and_is_granted_once():
    queue = KeyedQueue()
    for seconds in (30, 10, 20):
        queue.add_after("a", seconds)
    assert await queue.take() == "a"
    assert time() == pytest.approx(10)
    queue.done("a")
    assert await taken_within(queue, 100) is None


@virtual
async def test_a_later_wish_does_not_delay_what_is_added_now():
    queue = KeyedQueue()
    queue.add_after("a", 10)
    queue.add("a")
    assert await taken_within(queue, 1) == "a"


@virtual
async def test_a_key_added_wakes_a_worker_that_waits():
    queue = KeyedQueue()
    asyncio.get_running_loop().call_later(3, queue.add, "a")
    assert await queue.take() == "a"
    assert time() == pytest.approx(3)


@virtual
async def test_many_workers_share_the_keys_and_none_works_beside_another_on_one_key():
    queue, busy, done = KeyedQueue(), set(), []

    async def work() -> None:
        while True:
            key = await queue.take()
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0.5)
            busy.remove(key)
            done.append((key, round(time(), 3)))
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    for _ in range(3):
        for key in "abcd":
            queue.add(key)
        await asyncio.sleep(0.1)
    await asyncio.sleep(5)
    assert sorted(done) == [(key, at) for key in "abcd" for at in (0.5, 1.0)]
    assert all(not worker.done() for worker in workers)
    for worker in workers:
        worker.cancel()


@virtual
async def test_the_backoff_doubles_to_its_limit_and_success_resets_it():
    queue = KeyedQueue()
    queue.add("a")
    waits = []
    for _ in range(20):
        await queue.take()
        waits.append(queue.failed("a"))
    for count, wait in enumerate(waits):
        middle = min(FIRST_BACKOFF * 2**count, LONGEST_BACKOFF)
        assert 0.75 * middle <= wait <= 1.25 * middle
    await queue.take()
    queue.done("a")
    queue.add("a")
    await queue.take()
    assert queue.failed("a") <= 1.25 * FIRST_BACKOFF


@virtual
async def test_a_failed_key_comes_again_after_its_backoff_and_not_before():
    queue = KeyedQueue()
    queue.add("a")
    await queue.take()
    assert queue.failed("a", retry_after=7) == 7
    assert await taken_within(queue, 6.9) is None
    assert await taken_within(queue, 0.2) == "a"


@virtual
async def test_news_while_it_failed_bring_a_key_back_within_a_second_but_not_at_once():
    queue = KeyedQueue()
    queue.add("a")
    for _ in range(10):
        await queue.take()
        queue.failed("a")
    await queue.take()
    queue.add("a")
    assert queue.failed("a") == 1
    assert await taken_within(queue, 0.9) is None
    assert await taken_within(queue, 0.2) == "a"


@virtual
async def test_what_the_api_server_asks_for_holds_even_with_news():
    queue = KeyedQueue()
    queue.add("a")
    await queue.take()
    queue.add("a")
    assert queue.failed("a", retry_after=7) == 7
    assert await taken_within(queue, 6.9) is None


@virtual
async def test_backoff_is_of_one_key_alone():
    queue = KeyedQueue()
    for key in "ab":
        queue.add(key)
        await queue.take()
    for _ in range(5):
        queue.failed("a")
    assert queue.failed("b") <= 1.25 * FIRST_BACKOFF


@virtual
async def test_waiting_for_ever_with_nothing_due_sets_no_timer():
    queue = KeyedQueue()
    task = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), 1000)
    queue.add("a")
    assert await task == "a"
