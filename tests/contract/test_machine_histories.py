"""What holds in every history of calls, requests and times, whatever their order."""

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, Advance, DrainConflictError, DrainRequest, Settings, State

SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0])
REST = st.none() | SECONDS
REQUESTS = st.builds(
    DrainRequest, id=st.sampled_from("ab"), remaining=REST, since_withdrawal=SECONDS, propagation=REST, quiet=REST,
    flush=REST, stalled_after=REST,
)  # fmt: skip
PICKS = st.integers(0, 1000)


class Process(RuleBasedStateMachine):
    """Drives the machine as a process does: it advances after every event, and ends whom it is told to end."""

    def __init__(self) -> None:
        super().__init__()
        numbers = Settings(grace=10, propagation=3, quiet=2, flush=1, stalled_after=4)
        self.contract = DrainContract(numbers, "i")
        self.now = 100.0
        self.count = 0
        self.ended: dict[str, str] = {}
        self.seals = 0
        self.sequence = self.ever_cut = 0

    def some(self, pick: int) -> str:
        works = self.contract.works()
        return works[pick % len(works)].id

    def due(self) -> None:
        step = self.contract.advance(self.now)
        for work_id in step.tokens:
            assert work_id not in self.ended, "one token for each request, and none after it was aborted"
            self.ended[work_id] = "token"
        for work_id in step.abort:
            assert self.ended.get(work_id) != "abort"
            self.ended[work_id] = "abort"
            self.contract.finish(work_id)
        self.seals += step.sealed
        assert self.contract.advance(self.now) == Advance(), "what is due is said once"

    # -- what happens

    @rule(streaming=st.booleans(), queued=st.booleans())
    def arrive(self, streaming: bool, queued: bool) -> None:
        self.count += 1
        before, sealed = self.contract.in_flight, self.contract.state is State.SEALED
        admission = self.contract.arrive(f"r{self.count}", self.now, streaming=streaming, queued=queued)
        assert self.contract.in_flight == before + (admission is not Admission.REFUSE)
        assert admission is Admission.REFUSE or not sealed
        self.due()

    @precondition(lambda self: self.contract.in_flight)
    @rule(pick=PICKS)
    def progress(self, pick: int) -> None:
        self.contract.dequeue(self.some(pick))
        self.contract.progress(self.some(pick), self.now)

    @precondition(lambda self: self.contract.in_flight)
    @rule(pick=PICKS)
    def generated(self, pick: int) -> None:
        assert self.contract.generated(self.some(pick)) is (not self.contract.work(self.some(pick)).cut)

    @precondition(lambda self: self.contract.in_flight)
    @rule(pick=PICKS)
    def finish(self, pick: int) -> None:
        self.contract.finish(self.some(pick))
        self.due()

    @precondition(lambda self: self.contract.in_flight)
    @rule(pick=PICKS)
    def cut_short(self, pick: int) -> None:
        self.ended.setdefault(self.some(pick), "engine")
        self.contract.cut_short(self.some(pick))
        self.due()

    @rule(request=REQUESTS)
    def post(self, request: DrainRequest) -> None:
        self.contract.post(request, self.now)
        assert self.contract.state in (State.DRAINING, State.SEALED)
        assert self.contract.drain_id == request.id
        self.due()

    @rule(drain_id=st.sampled_from("ab"))
    def undrain(self, drain_id: str) -> None:
        contract = self.contract
        allowed = contract.drain_id == drain_id and not contract.stopping
        try:
            contract.undrain(drain_id)
        except DrainConflictError:
            assert not allowed
        else:
            assert allowed
            assert contract.state in (State.STARTING, State.SERVING)
        self.due()

    @rule(call=st.sampled_from(["started", "engine_gone", "engine_back"]))
    def engine(self, call: str) -> None:
        getattr(self.contract, call)()
        self.due()

    @rule(call=st.sampled_from(["prestop", "prestop", "sigterm"]))
    def stop(self, call: str) -> None:
        deadline = self.contract.killed_at
        getattr(self.contract, call)(self.now)
        assert deadline is None or self.contract.killed_at == deadline
        self.due()

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.due()

    @rule()
    def wait_until_something_is_due(self) -> None:
        at = self.contract.next_at(self.now)
        if at is not None:
            assert at > self.now
            self.now = at
            self.due()

    # -- what holds

    @invariant()
    def the_sequence_never_falls_and_cuts_are_never_forgotten(self) -> None:
        assert self.contract.sequence >= self.sequence
        assert self.contract.ever_cut >= max(self.ever_cut, self.contract.cut)
        self.sequence, self.ever_cut = self.contract.sequence, self.contract.ever_cut

    @invariant()
    def it_is_sealed_once_and_for_good_and_never_by_prestop_alone(self) -> None:
        sealed = self.contract.state is State.SEALED
        assert self.seals == sealed
        assert not sealed or self.contract.drain_id is not None or self.contract.terminating

    @invariant()
    def the_answer_agrees_with_itself(self) -> None:
        said = self.contract.snapshot(self.now)
        assert max(said["streams"] + said["queued"], said["stalled"]) <= said["inFlight"]
        assert said["inFlight"] == len(self.contract.works()) == len(said["agesSeconds"])
        assert (said["state"], said["cut"]) == (self.contract.state, self.contract.cut)

    @invariant()
    def nothing_is_due_before_it_says_so(self) -> None:
        """A process may sleep until `next_at`: until then neither tokens nor seal nor the end of preStop are due."""
        at = self.contract.next_at(self.now)
        for moment in (self.now + 1e6,) if at is None else ((self.now + at) / 2, at - 1e-6):
            later = copy.deepcopy(self.contract)
            if self.contract.state is State.DRAINING:
                assert later.prestop_over(moment) == self.contract.prestop_over(self.now)
            assert later.advance(moment) == Advance()


TestHistories = Process.TestCase
TestHistories.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
