"""Connections that trust a dependency's authorities; apart from its keys, since a start reads only those."""

import ssl

from durable_retry.attempt.http_client import SignInError
from durable_retry.features.authorities.authority import file_of
from durable_retry.rules.config.dependency import Dependency


def trust(dependency: Dependency, context: ssl.SSLContext) -> None:
    """Let connections to a dependency trust its authorities, too.

    Raises:
        SignInError: The file cannot be read any more.
    """
    if (file := file_of(dependency)) is None:
        return
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise SignInError(f"the ca of {dependency.name} cannot be read: {error}") from error
