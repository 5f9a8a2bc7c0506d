"""Mutation tests of the operator, behind `dev/mutants`: break one line at a time and see whether a test notices.

The mutations are data: one TOML file in areas/ for each part of the source. A file names the tests that are nearest to
the part, then source files, and under each its mutations: `old`, which stands exactly once in the file, becomes `new`.
"""
