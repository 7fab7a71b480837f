"""A durable task hub on SQLite, for one machine: see `hub.Hub`."""

from onebox.faults import FaultPoint, FaultPoints
from onebox.hub.hub import Hub
from onebox.hub.invoker import InvocationFailedError, Invoker
from onebox.hub.model import HubInUseError, StoreUnusableError
from onebox.hub.settings import HubSettings
from onebox.hub.taskhub import TaskHub

__all__ = [
    "FaultPoint",
    "FaultPoints",
    "Hub",
    "HubInUseError",
    "HubSettings",
    "InvocationFailedError",
    "Invoker",
    "StoreUnusableError",
    "TaskHub",
]
