"""Failing fast: an operation is refused while the circuit of its dependency is open, in place of waiting."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="fail_fast",
    dependency="durable_retry.features.fail_fast.members:FailFastKeys",
    members="durable_retry.features.fail_fast.members:MEMBERS",
    decision="fail_fast",
    refuse="durable_retry.features.fail_fast.refusing:refuse_while_open",
)
