"""What the operator tells Prometheus: `instruments` holds it, `services` shows each service as last seen, `endpoint`
answers scrapes.

Every series is bounded: by services, by pods that stand, and by closed sets of words. Those of a service end with it.
"""
