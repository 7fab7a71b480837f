from tests.support.telemetry import recorded

__all__ = ["recorded"]
