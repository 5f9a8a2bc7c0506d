"""Products of beta distributions: what a sample says about the share of drains that outlast a time.

Fay, Brittain and Proschan (2013), "Pointwise confidence intervals for a survival distribution with small samples or
heavy censoring", Biostatistics 14:723-736: at every time at which drains ended, with Y still running and d of them
ending, the share that goes on is at most Beta(Y - d + 1, d), independently. The product of these over all times up to
t bounds the survival at t. Without censoring the product is Beta(x + 1, n - x), x of n still running: the exact
binomial (Clopper-Pearson) limit. With censoring the product is replaced by the beta distribution of the same mean and
variance, their "method of moments".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, lgamma, log, log1p

_STEPS = 5000
"""About the square root of a or b are needed; that is enough for tens of millions."""
_TINY = 1e-300
_PRECISION = 1e-12


@dataclass(frozen=True, slots=True)
class BetaProduct:
    """A product of independent beta variables, by its mean and the logarithm of (second moment / mean squared)."""

    mean: float = 1.0
    log_spread: float = 0.0

    def times(self, a: float, b: float) -> BetaProduct:
        """Multiplied by Beta(a, b); Beta(a, 0) is 1 and Beta(0, b) is 0."""
        if b <= 0:
            return self
        if a <= 0 or self.mean == 0:
            return BetaProduct(0.0, 0.0)
        total = a + b
        return BetaProduct(self.mean * (a / total), self.log_spread + log1p(b / (a * (total + 1))))

    def probability_below(self, x: float) -> float:
        """P(product <= x), by the beta distribution with the same two moments."""
        variance = self.mean * self.mean * expm1(min(self.log_spread, 700.0))
        if self.mean == 0 or variance <= 0:
            return 1.0 if self.mean <= x else 0.0
        size = self.mean * (1 - self.mean) / variance - 1
        if size <= 0:
            # All of it lies at the two ends, 0 and 1.
            return 1 - self.mean
        return regularized_beta(self.mean * size, (1 - self.mean) * size, x)

    def quantile(self, probability: float) -> float:
        """The smallest x with P(product <= x) >= probability, to 1e-9."""
        low, high = 0.0, 1.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            if self.probability_below(middle) >= probability:
                high = middle
            else:
                low = middle
        return high


def regularized_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the distribution function of Beta(a, b), for a, b > 0.

    Continued fraction DLMF 8.17.22, evaluated from the front by Lentz's method, on the side of the mean where it
    converges fast.
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - regularized_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    return min(1.0, front / _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / _nonzero(1 + term * denominator)
        numerator = _nonzero(1 + term / numerator)
        factor = numerator * denominator
        value *= factor
        if abs(factor - 1) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
