"""The part of the test kit: an operation of a handler, run to its end over dependencies of the test."""
