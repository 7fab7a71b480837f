"""What the task hub refuses, and why.

HubError
├── HubInUse           another process serves this store
├── StoreTooNew        a later version of onebox has written this store
├── InstanceNotFound   no instance has this id
├── InstanceExists     the id is taken, and the request may not replace its instance
├── InstanceFinished   the instance takes no more messages
├── WrongStatus        the instance is not in the status that the request needs
├── InvalidRequest     the request itself makes no sense
├── StoreUnwritable    the disk is full, or another process holds the store's lock
└── Fenced             the work item was overtaken: its result belongs to a state that is gone
"""

from onebox.hub.model import Status


class HubError(Exception):
    """Anything that the task hub refuses."""


class HubInUse(HubError):  # noqa: N818 - the family reads as sentences
    """Another process serves this store."""


class StoreTooNew(HubError):  # noqa: N818 - as above
    """A later version of onebox has written this store, in a form that this one does not know."""


class InstanceNotFound(HubError):  # noqa: N818 - as above
    """No instance has this id."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' not found")
        self.instance_id = instance_id


class InstanceExists(HubError):  # noqa: N818 - as above
    """The id is taken by an instance that the request may not replace."""

    def __init__(self, instance_id: str, status: Status) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' already exists ({status.name})")
        self.instance_id = instance_id
        self.status = status


class InstanceFinished(HubError):  # noqa: N818 - as above
    """The instance has ended and takes no more messages."""

    def __init__(self, instance_id: str, status: Status) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' is finished ({status.name})")
        self.instance_id = instance_id
        self.status = status


class WrongStatus(HubError):  # noqa: N818 - as above
    """The instance is not in the status that the request needs."""

    def __init__(self, instance_id: str, status: Status, needed: str) -> None:
        super().__init__(f"Orchestration instance '{instance_id}' is not in a {needed} state ({status.name})")
        self.instance_id = instance_id
        self.status = status


class InvalidRequest(HubError):  # noqa: N818 - as above
    """The request itself makes no sense."""


class StoreUnwritable(HubError):  # noqa: N818 - as above
    """Nothing can be committed for now; nothing of the request was stored."""


class Fenced(HubError):  # noqa: N818 - as above
    """The work item was overtaken; its result is dropped and nothing of it was stored."""
