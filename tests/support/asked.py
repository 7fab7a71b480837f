"""How often code under test asks the storage account and the task hub."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from azure.core.pipeline import AsyncPipeline, Pipeline
from grpc.aio import _channel


@dataclass
class Asked:
    """How often something was asked."""

    storage: int = 0
    hub: int = 0


@contextmanager
def counting() -> Iterator[Asked]:
    """Count the requests to storage and the calls of the task hub for a while."""
    asked = Asked()

    def of_storage(send: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **more: Any) -> Any:
            asked.storage += 1
            return send(*given, **more)

        return run

    called = _channel.UnaryUnaryMultiCallable.__call__

    def of_hub(*given: Any, **more: Any) -> Any:
        asked.hub += 1
        return called(*given, **more)

    with (
        patch.object(Pipeline, "run", of_storage(Pipeline.run)),
        patch.object(AsyncPipeline, "run", of_storage(AsyncPipeline.run)),
        patch.object(_channel.UnaryUnaryMultiCallable, "__call__", of_hub),
    ):
        yield asked
