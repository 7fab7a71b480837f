"""The circuits of the dependencies."""
