"""The conversation with a draining pod, over a scripted pod and in virtual time: nothing is waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from tidegate.api.errors import PodTrouble
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import Reading
from tidegate.drain.contract import Address
from tidegate.drain.sessions import FAULT_SECONDS
from wiring.scripted_pod import QUESTION, Desk, Pod, now, order, virtual


@virtual
async def test_a_drain_from_withdrawal_to_seal():
    desk = Desk(Pod())
    desk.want(order())
    await asyncio.sleep(0.2)
    assert desk.pod.calls == [] and desk.looked > 1, "nobody is told before the slices are without the pod"
    await asyncio.sleep(30)
    assert desk.heard is not None
    assert (desk.heard.state, desk.heard.drain_id, desk.heard.in_flight) == ("sealed", "our-id", 0)
    assert desk.pod.named("start") == 1 and desk.pod.calls[-1] == "wait"
    # One wait of five seconds each, and none after the seal.
    assert desk.pod.named("wait") <= 6
    assert set(desk.woken) == {"shop/chat"}
    calls = len(desk.pod.calls)
    await asyncio.sleep(100)
    assert len(desk.pod.calls) == calls


@virtual
async def test_the_time_since_withdrawal_is_from_the_slices_not_from_the_label():
    told: list[float] = []

    class Listening(Pod):
        async def start(self, address: Address, key: str, order: DrainOrder, since: float, at: float) -> Reading:
            told.append(since)
            return await super().start(address, key, order, since, at)

    desk = Desk(Listening(), leaves_after=3)
    desk.want(order())
    await asyncio.sleep(10)
    assert len(told) == 1 and told[0] < 0.1
    assert desk.sessions.withdrawn["u"] >= desk.began + 3


@virtual
async def test_looking_for_the_withdrawal_slows_down():
    desk = Desk(Pod(), leaves_after=60)
    desk.want(order())
    await asyncio.sleep(50)
    assert 50 <= desk.looked <= 60


@virtual
async def test_a_pod_that_never_leaves_the_slices_is_told_in_time_to_deliver_its_tokens():
    desk = Desk(Pod(work_ends=1), leaves_after=10_000)
    wanted = order()
    desk.want(wanted)
    deadline = wanted.record.deadline
    assert deadline is not None
    await asyncio.sleep(deadline - now() - wanted.flush_seconds - 3)
    assert desk.pod.calls == [] and desk.trouble == "not-withdrawn"
    await asyncio.sleep(3)
    assert desk.pod.named("start") == 1


@virtual
async def test_a_process_that_restarted_is_told_again():
    desk = Desk(Pod(work_ends=20))
    desk.want(order())
    await asyncio.sleep(3)
    desk.pod.restart()
    await asyncio.sleep(8)
    assert desk.pod.named("start") == 2
    assert desk.heard is not None and (desk.heard.instance, desk.heard.drain_id) == ("run-2", "our-id")


@virtual
async def test_one_that_somebody_undrained_is_told_again():
    desk = Desk(Pod(work_ends=50))
    desk.want(order())
    await asyncio.sleep(3)
    desk.pod.turn("serving")
    await asyncio.sleep(3)
    assert desk.pod.named("start") == 2 and desk.pod.state == "draining"


@virtual
async def test_sealed_under_another_id_is_no_end():
    desk = Desk(Pod(alter=lambda r: replace(r, state="sealed", in_flight=0, drain_id="foreign")))
    desk.want(order(propagation_seconds=0))
    await asyncio.sleep(60)
    assert desk.pod.named("start") > 10, "it goes on asking"
    assert len(desk.pod.calls) <= 60 / 0.5 + 10, "and not in a rush"


@virtual
async def test_one_that_does_not_take_the_drain_is_a_trouble():
    """What it counts meanwhile is not about a drain: nobody may read it as if it went on."""
    desk = Desk(Pod(alter=lambda r: replace(r, state="serving", drain_id=None)))
    desk.want(order())
    await asyncio.sleep(20)
    assert (desk.trouble, desk.heard) == ("ignored", None)
    assert 10 < desk.pod.named("start") <= 20 / 0.5 + 10


@virtual
async def test_sealed_before_the_propagation_time_is_a_trouble():
    desk = Desk(Pod(alter=lambda r: replace(r, state="sealed", in_flight=0)))
    desk.want(order())
    await asyncio.sleep(4)
    assert (desk.trouble, desk.heard) == ("contradiction", None)
    await asyncio.sleep(4)
    assert desk.trouble is None and desk.heard is not None and desk.heard.state == "sealed"


@virtual
async def test_a_sequence_that_falls_within_one_process_is_a_trouble():
    falling = iter(range(1000, 0, -1))
    desk = Desk(Pod(work_ends=100, alter=lambda r: replace(r, sequence=next(falling))))
    desk.want(order())
    await asyncio.sleep(20)
    assert desk.trouble == "contradiction"
    assert desk.heard is not None and desk.heard.sequence == 1000, "the first is kept, the lower ones are not"


@virtual
async def test_a_changed_budget_tells_the_same_id_again_and_does_not_look_for_the_withdrawal_again():
    desk = Desk(Pod(work_ends=50))
    first = order()
    desk.want(first)
    await asyncio.sleep(3)
    looked = desk.looked
    desk.want(replace(first, record=replace(first.record, deadline=now() + 5000)))
    await asyncio.sleep(3)
    assert desk.pod.named("start") == 2 and desk.looked == looked


@virtual
async def test_the_same_order_again_and_again_disturbs_nothing():
    desk = Desk(Pod(work_ends=50))
    wanted = order()
    for _ in range(100):
        desk.want(wanted)
        await asyncio.sleep(0.1)
    assert desk.pod.named("start") == 1


@virtual
async def test_an_order_that_is_gone_ends_its_conversation():
    desk = Desk(Pod(work_ends=50))
    desk.want(order())
    await asyncio.sleep(3)
    desk.want()
    calls = len(desk.pod.calls)
    await asyncio.sleep(60)
    assert len(desk.pod.calls) == calls


@virtual
async def test_one_service_does_not_end_the_conversations_of_another():
    desk = Desk(Pod(work_ends=50))
    desk.want(order())
    desk.sessions.want("shop/other", (), ())
    desk.sessions.forget("shop/other", set())
    await asyncio.sleep(3)
    assert desk.heard is not None and desk.heard.state == "draining"


@virtual
async def test_undo_asks_until_the_pod_serves_and_forgets_the_withdrawal():
    desk = Desk(Pod(work_ends=50))
    out = order()
    desk.want(out)
    await asyncio.sleep(3)
    desk.want(replace(out, undo=True))
    assert desk.heard is None, "what was said on the way out says nothing about the way back"
    await asyncio.sleep(0.5)
    assert desk.heard is not None and desk.heard.state == "serving"
    assert "u" not in desk.sessions.withdrawn, "the next drain has to look again"


@virtual
async def test_undo_of_a_sealed_pod_learns_that_it_is_sealed():
    desk = Desk(Pod(work_ends=1))
    out = order()
    desk.want(out)
    await asyncio.sleep(20)
    desk.want(replace(out, undo=True))
    await asyncio.sleep(1)
    assert desk.heard is not None and desk.heard.state == "sealed" and desk.trouble is None


@virtual
async def test_undo_slows_down_while_the_pod_does_not_come_back():
    desk = Desk(Pod(state="sealed", drain_id="our-id"))
    desk.want(replace(order(), undo=True))
    await asyncio.sleep(30)
    assert 25 <= desk.pod.named("undo") <= 40


@virtual
async def test_a_pod_that_answers_at_once_with_nothing_new_cannot_make_the_operator_spin():
    class Hasty(Pod):
        async def wait(self, address: Address, key: str, sequence: int, at: float) -> Reading:
            await self._enter("wait", key)
            return self._answer()

    desk = Desk(Hasty(work_ends=1000))
    desk.want(order())
    await asyncio.sleep(60)
    assert len(desk.pod.calls) <= 60 / 0.5 + 2
    assert len(desk.woken) <= 3, "and wakes nobody for it"


@virtual
async def test_a_pod_that_has_news_all_the_time_cannot_make_the_operator_spin():
    class Restless(Pod):
        async def wait(self, address: Address, key: str, sequence: int, at: float) -> Reading:
            await self._enter("wait", key)
            self.sequence += 1
            return self._answer()

    desk = Desk(Restless(work_ends=1000))
    desk.want(order())
    await asyncio.sleep(60)
    assert len(desk.pod.calls) <= 60 / 0.05 + 2
    assert len(desk.woken) <= len(desk.pod.calls)


def refuse(kind: str, until: int) -> Callable[[str], None]:
    """Fails so many times, then not any more."""
    left = iter(range(until))

    def fault(call: str) -> None:
        if next(left, None) is not None:
            raise PodTrouble(kind, "as told")

    return fault


@virtual
async def test_a_trouble_is_kept_until_the_pod_answers_again_and_the_pace_stays_sane():
    desk = Desk(Pod(fault=refuse("refused", 40)))
    desk.want(order())
    await asyncio.sleep(20)
    assert desk.trouble == "refused" and len(desk.pod.calls) <= 20 + 6
    await asyncio.sleep(30)
    assert desk.trouble is None and desk.heard is not None


@virtual
async def test_a_fault_of_ours_begins_the_conversation_again_and_takes_no_pod_for_empty():
    faults = iter([RuntimeError("slip"), RuntimeError("slip")])

    def slip(call: str) -> None:
        error = next(faults, None)
        if error is not None:
            raise error

    desk = Desk(Pod(fault=slip))
    desk.want(order())
    await asyncio.sleep(FAULT_SECONDS - 1)
    assert desk.heard is None and desk.pod.named("start") == 1
    await asyncio.sleep(2 * FAULT_SECONDS)
    assert desk.pod.named("start") == 3
    assert desk.heard is not None and desk.heard.state == "draining"


@virtual
async def test_after_a_rotation_the_previous_key_is_tried_and_then_the_secret_is_read_again():
    previous = Desk(Pod(keys=("old",)), keys=(("new", "old"), ()))
    previous.want(order())
    await asyncio.sleep(3)
    assert previous.heard is not None and not any(previous.fresh)
    rotated = Desk(Pod(keys=("new",)), keys=(("old",), ("new", "old")))
    rotated.want(order())
    await asyncio.sleep(3)
    assert rotated.heard is not None and any(rotated.fresh)


@virtual
async def test_a_pod_that_takes_no_key_and_a_secret_that_is_gone_are_troubles():
    refused = Desk(Pod(keys=()))
    refused.want(order())
    await asyncio.sleep(3)
    assert (refused.trouble, refused.heard) == ("unauthorized", None)
    keyless = Desk(Pod(), keys=((), ()))
    keyless.want(order())
    await asyncio.sleep(3)
    assert (keyless.trouble, keyless.pod.calls) == ("no-key", [])


@virtual
async def test_the_age_of_what_was_cut_is_that_of_the_oldest_before_it():
    ages = iter([40.0, 45.0])
    desk = Desk(Pod(work_ends=8))

    def cutting(reading: Reading) -> Reading:
        if reading.state == "sealed":
            return replace(reading, cut=2)
        return replace(reading, oldest_seconds=next(ages, None))

    desk.pod.alter = cutting
    desk.want(order())
    await asyncio.sleep(20)
    assert desk.heard is not None and desk.heard.cut == 2
    assert desk.heard.oldest_cut_seconds == pytest.approx(48, abs=0.5)


@virtual
async def test_a_question_is_asked_once_and_wakes_the_service_whatever_comes_of_it():
    desk = Desk(Pod())
    for _ in range(5):
        desk.want(questions=[QUESTION])
    await asyncio.sleep(1)
    assert desk.pod.calls == ["ask"] and desk.woken == ["shop/chat"]
    assert desk.heard is not None and desk.heard.in_flight == 3
    desk.pod.fault = refuse("timeout", 1)
    desk.want(questions=[QUESTION])
    await asyncio.sleep(1)
    assert desk.trouble == "timeout" and desk.heard is not None, "the last good word is kept beside it"


@virtual
async def test_a_question_that_fails_by_a_fault_of_ours_is_a_trouble_too_so_nobody_asks_in_a_rush():
    def slip(call: str) -> None:
        raise RuntimeError("slip")

    desk = Desk(Pod(fault=slip))
    desk.want(questions=[QUESTION])
    await asyncio.sleep(1)
    assert desk.trouble is not None and desk.woken == ["shop/chat"]


@virtual
async def test_an_order_takes_the_place_of_a_question_and_no_question_is_asked_beside_it():
    desk = Desk(Pod(work_ends=50), leaves_after=0)
    desk.want(questions=[QUESTION])
    desk.want(order(), questions=[QUESTION])
    await asyncio.sleep(3)
    assert desk.pod.named("ask") == 0 and desk.pod.named("start") == 1


@virtual
async def test_what_is_known_of_pods_that_are_gone_is_dropped():
    desk = Desk(Pod(work_ends=50))
    desk.want(order())
    await asyncio.sleep(3)
    desk.sessions.forget("shop/chat", {"u"})
    assert desk.heard is not None
    desk.sessions.forget("shop/chat", set())
    calls = len(desk.pod.calls)
    await asyncio.sleep(20)
    assert (desk.heard, desk.sessions.withdrawn, len(desk.pod.calls)) == (None, {}, calls)


@virtual
async def test_a_pod_that_goes_is_only_asked_and_its_last_word_is_kept():
    desk = Desk(Pod())
    watched = order(watch=True)
    desk.want(watched)
    await asyncio.sleep(3)
    assert desk.pod.calls == ["ask", "wait"]
    assert desk.looked == 0, "it is no drain of ours, so the slices are nobody's business"
    assert desk.woken == ["shop/chat"], "the same answer is no news"
    desk.pod.alter = lambda reading: replace(reading, state="draining", in_flight=2, cut=3)
    desk.pod.turn("draining")
    await asyncio.sleep(0.01)
    assert len(desk.woken) == 2
    await asyncio.sleep(20)
    assert len(desk.woken) == 2 and len(desk.pod.calls) <= 8
    desk.pod.turn("draining")
    desk.pod.fault = refused
    await asyncio.sleep(3)
    assert desk.heard is not None and (desk.heard.in_flight, desk.heard.cut) == (2, 3)
    assert desk.trouble == "refused" and len(desk.woken) == 3, "a pod that has ended wakes nobody time and again"
    calls = len(desk.pod.calls)
    desk.want()
    await asyncio.sleep(3)
    assert len(desk.pod.calls) == calls
    desk.sessions.forget("shop/chat", {"u"})
    assert desk.heard is not None
    desk.sessions.forget("shop/chat", set())
    assert desk.heard is None


def refused(_: str) -> None:
    raise PodTrouble("refused", "nothing listens")


@virtual
async def test_close_ends_every_task():
    desk = Desk(Pod(work_ends=50), leaves_after=0)
    desk.want(order())
    desk.want(order(), questions=[replace(QUESTION, uid="other")])
    await desk.sessions.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert others == set()
