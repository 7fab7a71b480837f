"""Sends what a function put into its output bindings to where it belongs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onebox.worker.failures import Failure, FunctionFailedError
from onebox.worker.functions import Binding, Function
from onebox.worker.runner import Result

Sender = Callable[[Binding, Any], Awaitable[None]]

# Bindings whose value is the invocation's answer: whoever invoked the function takes it.
_ANSWERS = {"http"}


class Outputs:
    """The output bindings that onebox can serve, by type."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders

    def serves(self, binding: Binding) -> bool:
        """Tell whether data for this binding has somewhere to go."""
        return binding.type in _ANSWERS or binding.type in self._senders

    async def send(self, function: Function, result: Result) -> None:
        """Send every output that the function set; as in the host, the run fails when one cannot be sent.

        Raises:
            FunctionFailedError: A binding is not served, or its service refused.
        """
        for binding in function.outputs():
            datum = result.returned if binding.name == "$return" else result.outputs.get(binding.name)
            if binding.type in _ANSWERS or datum is None or datum.value is None:
                continue
            sender = self._senders.get(binding.type)
            if sender is None:
                raise FunctionFailedError(_not_served(function, binding))
            await sender(binding, datum)


def _not_served(function: Function, binding: Binding) -> Failure:
    message = f"{function.name}: onebox has no output binding of type {binding.type!r} ({binding.name})"
    return Failure("NotSupportedException", message, message)
