"""The file of a dependency's authorities."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from durable_retry.base.validation import Problem, Strict
from durable_retry.rules.config.dependency import Dependency
from durable_retry.settings.configuration import APP_ROOT
from durable_retry.settings.pem_files import problems_of_pem


class AuthorityKeys(Strict):
    """What the feature adds to a dependency.

    Attributes:
        ca: PEM file of certificate authorities, relative to the app's folder, which are trusted beside the
            public ones: of a company, or of a proxy that opens TLS. They count for its token service, too.
    """

    ca: Annotated[str, Field(min_length=1)] | None = None


def problems_of_authority(dependency: Dependency) -> Iterator[Problem]:
    """List what is wrong with the file of a dependency's authorities."""
    if (file := file_of(dependency)) is not None:
        yield from problems_of_pem("/ca", [file], lambda context: context.load_verify_locations(file))


def file_of(dependency: Dependency) -> Path | None:
    """Return the file that a dependency names; None where it names none."""
    ca = dependency.keys_of("authorities", AuthorityKeys).ca
    return None if ca is None else APP_ROOT / ca
