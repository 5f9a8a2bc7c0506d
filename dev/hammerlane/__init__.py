"""Hammers a real gateway process, and sees that nothing is left of it: no request, no memory, no line in the log."""
