"""What the console does for a feature of the app; an app without the feature lacks that alone."""

from collections.abc import Mapping
from typing import Any

from durable_retry.plugins import features
from durable_retry.runtime.deferred import imported


def of_features(places: Mapping[str, str]) -> dict[str, Any]:
    """Return what there is for the features that the app has, by their names.

    Args:
        places: By the name of a feature where that is, as `package.module:name`.
    """
    return {each.name: imported(places[each.name]) for each in features() if each.name in places}


def of_feature(name: str, place: str) -> Any:
    """Return what there is for a feature; None where the app lacks it.

    Args:
        place: Where that is, as `package.module:name`.
    """
    return of_features({name: place}).get(name)
