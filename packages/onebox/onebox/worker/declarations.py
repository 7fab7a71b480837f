"""The few message shapes of the Functions RPC protocol that the runtime fills while it indexes an app.

The runtime is handed a namespace with the protobuf classes of the Functions host. It only calls them with
keyword arguments and hands the results back, so plain records serve as well and no protobuf is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar


@dataclass(frozen=True)
class BindingInfo:
    """Direction and type of one binding; the numbers are those of the protocol's `BindingInfo.Direction`."""

    type: str
    data_type: int | None
    direction: int

    # The protocol gives `in` the value 0 too, but the runtime never compares with it.
    out: ClassVar[int] = 1
    inout: ClassVar[int] = 2
    undefined: ClassVar[int] = 0


@dataclass(frozen=True)
class RpcRetryOptions:
    """The retry policy of a function."""

    max_retry_count: int
    retry_strategy: str
    delay_interval: timedelta | None = None
    minimum_interval: timedelta | None = None
    maximum_interval: timedelta | None = None


@dataclass(frozen=True)
class RpcFunctionMetadata:
    """One indexed function."""

    name: str
    function_id: str
    managed_dependency_enabled: bool
    directory: str
    script_file: str
    entry_point: str
    is_proxy: bool
    language: str
    bindings: Mapping[str, BindingInfo]
    raw_bindings: Sequence[str]
    retry_options: RpcRetryOptions | None
    properties: Mapping[str, Any]
