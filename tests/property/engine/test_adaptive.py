"""Whatever a dependency shows, an adaptive limit keeps its bounds and moves the right way."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from durable_retry.engine.adaptive import Adaptive, AdaptiveSettings, Observed, adapted
from tests.support.builders import NOON, after

SETTINGS = st.builds(
    lambda least, more: AdaptiveSettings(least, least + more), st.integers(1, 50), st.integers(1, 500)
)
SEEN = st.builds(
    lambda good, began, held: Observed(good, int(began is not None), began, held),
    st.integers(0, 1_000),
    st.none() | st.integers(0, 100).map(after),
    st.booleans(),
)


@given(SETTINGS, st.lists(SEEN, max_size=50))
def test_it_stays_between_its_bounds(settings: AdaptiveSettings, reports: list[Observed]) -> None:
    current: Adaptive | None = None
    for second, seen in enumerate(reports):
        before = settings.max_concurrency if current is None else current.limit
        current = adapted(current, seen, NOON + timedelta(seconds=second), settings)
        limit = settings.max_concurrency if current is None else current.limit
        assert settings.min_concurrency <= limit <= settings.max_concurrency
        if seen.overloaded:
            assert limit <= before
        else:
            assert limit >= before
