"""Operations from the app's own code: `call` in an orchestrator, `Operations` in any other function."""

from typing import Final

from durable_retry.features.in_process.names import CALL, CALL_SOURCE, LOOK_AT_CALL, START_CALL
from durable_retry.plugins import Activities, Orchestration, Plugin

PLUGIN: Final = Plugin(
    name="in_process",
    orchestrations=(Orchestration(name=CALL, prefix="call-", has_caller=True),),
    orchestrators=("call",),
    activities=(Activities(module="calls", with_hub=(START_CALL, LOOK_AT_CALL)),),
    own_sources=(CALL_SOURCE,),
    executor="durable_retry.features.in_process.executions:guard_orchestrators",
)
