"""Lookup: a dependency is asked whether an attempt with an unknown end happened."""

from typing import Final

from durable_retry.features.lookup.names import LOOK_UP, LOOKUP
from durable_retry.plugins import Activities, Collection, Plugin

PLUGIN: Final = Plugin(
    name=LOOKUP,
    collections=(Collection("operations/{*rest}", ("durable_retry.features.lookup.routes:routes",)),),
    activities=(Activities(module="lookup", with_hub=(LOOK_UP,)),),
    dependency="durable_retry.features.lookup.rules:LookupKeys",
    members="durable_retry.features.lookup.rules:MEMBERS",
    gate="lookup",
    settle="lookup",
    play="durable_retry.features.lookup.testing:settle",
)
