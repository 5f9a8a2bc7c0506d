"""A lane of its own: the unmodified `llama-server` program, in the tests of test_engines.py.

It is not collected unless it is named, since the program is nobody's but the user's: `make lane-llama-server`.
"""

import pytest

from cluster.harness.engine import EngineService, LlamaServerService
from cluster.test_engines import (  # noqa: F401 - collected here
    test_an_answer_that_is_cut_is_an_error_of_each_client_and_carries_the_token,
    test_every_answer_comes_whole_whatever_takes_the_pods,
)


@pytest.fixture
def engine() -> type[EngineService]:
    return LlamaServerService
