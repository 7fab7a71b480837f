"""The outbox: events that follow a success or a dead letter, to queues and as webhooks."""

from typing import Final

from durable_retry.base.names import DeadLetterReason
from durable_retry.features.outbox import names
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="outbox",
    collections=(Collection("outbox/{*rest}", ("durable_retry.features.outbox.routes:routes",)),),
    orchestrations=(
        Orchestration(
            name=names.OUTBOX,
            prefix=names.outbox_instance(""),
            calls_dependencies=True,
            is_idle="durable_retry.features.outbox.sending:was_swept_empty",
        ),
    ),
    orchestrators=("outbox",),
    follower="outbox",
    activities=(
        Activities(
            module="outbox",
            with_hub=(names.PUBLISH,),
            without_hub=(names.OUTBOX_PENDING, names.OUTBOX_GIVE_UP),
        ),
    ),
    members="durable_retry.features.outbox.rules.outbox:MEMBERS",
    dependency="durable_retry.features.outbox.rules.outbox:OutboxKeys",
    of_core=("webhook.secrets",),
    failure="durable_retry.features.outbox.event_store:rows_of_failure",
    commit="durable_retry.features.outbox.event_store:rows_of_commit",
    status="durable_retry.features.outbox.event_store:with_event_states",
    each_minute=("durable_retry.features.outbox.sending:sweep",),
    retention={"sent_events": "durable_retry.features.outbox.removal:SENT_EVENTS"},
    replays={
        DeadLetterReason.OUTBOX_UNDELIVERABLE: "durable_retry.features.outbox.replay",
    },
)
