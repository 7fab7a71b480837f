"""What the parts of other features play with: a feature imports none of another."""

from durable_retry.features.handlers.testing.fakes import FakeClock, FakeDependency, FakeStep
from durable_retry.features.handlers.testing.handlers import HandlerRun, Play, warn_of_unasked, world

__all__ = ["FakeClock", "FakeDependency", "FakeStep", "HandlerRun", "Play", "warn_of_unasked", "world"]
