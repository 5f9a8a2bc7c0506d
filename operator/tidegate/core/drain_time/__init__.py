"""How long a drain takes, learnt from the drains of a service: histogram, survival curve, bound, and the drain term.

`histogram` keeps the samples, `survival` reads percentiles and bounds off them, `drain_term` makes one number of it
for terminationGracePeriodSeconds. `beta` holds the one special function that the bounds need.
"""
