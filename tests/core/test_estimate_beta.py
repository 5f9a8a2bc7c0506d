"""The beta distribution of the estimator, against scipy and against limits that were published."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from tidegate.core.drain_time.beta import BetaProduct, regularized_beta

# lgamma of large numbers loses digits: up to a million samples the error stays below 1e-7.
SIZES = st.floats(1e-4, 1e6)


@given(a=SIZES, b=SIZES, x=st.floats(0, 1, allow_subnormal=False))
@settings(max_examples=150, deadline=None)
def test_distribution_function_is_scipy_s(a: float, b: float, x: float) -> None:
    assert regularized_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-7)


@given(a=SIZES, b=SIZES, step=st.floats(-6, 6))
@settings(max_examples=150, deadline=None)
def test_it_is_scipy_s_near_the_mean_where_it_is_steep(a: float, b: float, step: float) -> None:
    mean, deviation = a / (a + b), math.sqrt(a * b / (a + b + 1)) / (a + b)
    x = min(1.0, max(0.0, mean + step * deviation))
    assert regularized_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=1e-7)


@pytest.mark.parametrize("x", [-1.0, 0.0, 1.0, 2.0])
def test_outside_its_range_it_is_0_or_1(x: float) -> None:
    assert regularized_beta(2.0, 3.0, x) == (1.0 if x >= 1 else 0.0)


def test_without_censoring_the_product_is_one_beta_variable() -> None:
    product = BetaProduct()
    for running in range(50, 43, -1):
        product = product.times(running, 1)
    for x in (0.6, 0.8, 0.86, 0.9, 0.97):
        assert product.probability_below(x) == pytest.approx(stats.beta(44, 7).cdf(x), abs=1e-9)


# Fay and Brittain's example of four failures at 3, 7, 8 and 14 without censoring: the published 97.5 % limits.
PUBLISHED_UPPER = [0.9936905, 0.9324140, 0.8058796, 0.6023646]
PUBLISHED_LOWER = [0.194120450, 0.067585986, 0.006309463]


def test_published_limits() -> None:
    product, upper, lower = BetaProduct(), [], []
    for running in (4, 3, 2, 1):
        product = product.times(running, 1)
        upper.append(product.quantile(0.975))
        lower.append(product.times(running - 1, 1).quantile(0.025))
    assert upper == pytest.approx(PUBLISHED_UPPER, abs=1e-6)
    assert lower[:3] == pytest.approx(PUBLISHED_LOWER, abs=1e-6)
    assert lower[3] == pytest.approx(0, abs=1e-6)


def test_moments_are_those_of_the_product_of_independent_variables() -> None:
    random = Random(4)
    pairs = [(30.0, 2.0), (12.5, 0.7), (6.0, 3.0)]
    drawn = [math.prod(random.betavariate(a, b) for a, b in pairs) for _ in range(20000)]
    product = BetaProduct()
    for a, b in pairs:
        product = product.times(a, b)
    mean = sum(drawn) / len(drawn)
    assert product.mean == pytest.approx(mean, rel=0.02)
    for x in (0.3, 0.5, 0.7):
        share = sum(value <= x for value in drawn) / len(drawn)
        assert product.probability_below(x) == pytest.approx(share, abs=0.02)


def test_factors_that_are_certain() -> None:
    product = BetaProduct().times(5, 2)
    assert product.times(3, 0) == product
    assert product.times(0, 3).probability_below(0) == 1
    assert BetaProduct().probability_below(0.99) == 0
    assert BetaProduct().quantile(0.95) == pytest.approx(1)
