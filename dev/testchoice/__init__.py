"""Which tests concern a change: those that import what has changed, the nearest first, as far as a minute goes."""
