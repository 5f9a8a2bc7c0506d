"""The drain contract, v1, as one state machine without input and output: no socket, no clock, no event loop.

Whoever speaks the contract drives the machine: the gateway for an engine, the test application for itself. The
operator, on the other side, takes the states and the names of the fields from here.

`machine` has the states' rules and the JSON answer; `terms` the states, the numbers in force, the body of POST /drain
and the errors; `fields` the members of both documents; `calls` the key and the wait of a call; `token` the shutdown
token and the resume token in it. Imports are the standard library's, and `tidegate.api.names` at most.
"""
