"""Private certificate authorities, which a dependency's certificate may come from beside the public ones."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="authorities",
    dependency="durable_retry.features.authorities.authority:AuthorityKeys",
    check="durable_retry.features.authorities.authority:problems_of_authority",
    tls="durable_retry.features.authorities.trust:trust",
)
