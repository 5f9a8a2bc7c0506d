"""The operator's metrics: `instruments` holds counters and histograms, `services` the gauges of each service, and
`endpoint` answers scrapes.

The number of series is bounded by services, existing pods and enumerations. The series of a service end with it.
"""
