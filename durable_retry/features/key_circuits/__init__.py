"""A circuit for each limit key: `circuit.by = "limit_key"`."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="key_circuits",
    of_core=("circuit.by",),
    key_circuits="durable_retry.features.key_circuits.circuit:key_circuit_of",
    each_round=("durable_retry.features.key_circuits.upkeep:forget_idle_circuits",),
)
