"""Sends what a function put into its output bindings to where it belongs."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onebox.worker.failures import Failure, FunctionFailedError
from onebox.worker.functions import Binding, Function
from onebox.worker.runner import Result

_LOG = logging.getLogger("onebox.functions")

# Takes the binding, its data, and what expressions in it may name; raises anything when it cannot be sent.
Sender = Callable[[Binding, Any, Mapping[str, str]], Awaitable[None]]

# Bindings whose value is the invocation's answer: whoever invoked the function takes it.
_ANSWERS = {"http"}


class Outputs:
    """The output bindings that onebox can serve, by type."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders

    async def send(self, function: Function, result: Result, values: Mapping[str, str] | None = None) -> None:
        """Send every output that the function set; as in the host, the run fails when one cannot be sent.

        Args:
            function: Whose outputs.
            result: What it returned.
            values: What expressions in the bindings may name, lower case; None for nothing.

        Raises:
            FunctionFailedError: A binding is not served, or its service refused.
        """
        for binding in function.outputs():
            datum = result.returned if binding.name == "$return" else result.outputs.get(binding.name)
            if binding.type not in _ANSWERS and datum is not None and datum.value is not None:
                await self._send_one(function, binding, datum, values or {})

    async def _send_one(
        self, function: Function, binding: Binding, datum: Any, values: Mapping[str, str]
    ) -> None:
        where = f"{function.name}, output {binding.name}"
        sender = self._senders.get(binding.type)
        if sender is None:
            raise _failed("NotSupportedException", f"{where}: onebox has no output of type {binding.type!r}")
        try:
            await sender(binding, datum, values)
        except Exception as error:
            raise _failed(type(error).__name__, f"{where}: {error}") from error


def _failed(error_type: str, message: str) -> FunctionFailedError:
    _LOG.error("%s", message)  # the run itself was told as succeeded, before its outputs were sent
    return FunctionFailedError(Failure(error_type, message, message))
