"""Order: operations of one order key run one after the other."""

from typing import Final

from durable_retry.features.order.names import LOOK_AT_LANE, ORDER_LANE, PASS_TURN
from durable_retry.plugins import Activities, Collection, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="order",
    collections=(Collection("order-lanes/{*rest}", ("durable_retry.features.order.routes:routes",)),),
    orchestrations=(Orchestration(name=PASS_TURN, prefix="turn-", is_watched=False),),
    orchestrators=("order_lane",),
    activities=(Activities(module="order_lane", with_hub=(LOOK_AT_LANE,)),),
    entities=(ORDER_LANE,),
    dependency="durable_retry.features.order.rules.members:OrderKeys",
    members="durable_retry.features.order.rules.members:MEMBERS",
    start="durable_retry.features.order.start:start_in_lane",
    gate="order_lane",
    end="order_lane",
    archived="durable_retry.features.order.lanes:release_archived",
    tables=("durable_retry.features.order.store:TABLE",),
    each_round=("durable_retry.features.order.lanes:tend_lanes",),
)
