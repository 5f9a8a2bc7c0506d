"""The members of the contract's JSON: one place for the pod that answers and for the operator that asks."""

from typing import Final

VERSION: Final = "v1"
"""What `CONTRACT` says."""

# The state, as every call answers it.
CONTRACT: Final = "contract"
INSTANCE: Final = "instance"
DRAIN_ID: Final = "drainId"
STATE: Final = "state"
IN_FLIGHT: Final = "inFlight"
STREAMS: Final = "streams"
QUEUED: Final = "queued"
STALLED: Final = "stalled"
OLDEST_SECONDS: Final = "oldestSeconds"
LAST_ARRIVAL_SECONDS: Final = "lastArrivalSeconds"
CUT: Final = "cut"
AGES_SECONDS: Final = "agesSeconds"
SEQUENCE: Final = "sequence"

MOST_AGES: Final = 64
"""So many ages are told, the oldest first; a reader takes no more."""

# The body of POST /drain.
ID: Final = "id"
REASON: Final = "reason"
REMAINING_SECONDS: Final = "remainingSeconds"
SINCE_WITHDRAWAL_SECONDS: Final = "sinceWithdrawalSeconds"
PROPAGATION_SECONDS: Final = "propagationSeconds"
QUIET_SECONDS: Final = "quietSeconds"
FLUSH_SECONDS: Final = "flushSeconds"
STALLED_AFTER_SECONDS: Final = "stalledAfterSeconds"
DEADLINE: Final = "deadline"
