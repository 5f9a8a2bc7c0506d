"""The drain contract, v1, as one state machine without input and output: no socket, no clock, no event loop.

The gateway and the test application drive it; `docs/reference.md` describes what it looks like over HTTP.

`terms` has the states, the numbers in force, the body of POST /drain and the errors; `machine` the state machine with
its JSON answer; `token` the shutdown token and the resume token in it. Imports are the standard library's, and
`tidegate.api.names` at most.
"""
