"""The activity of a check of the task hub's queues."""


async def pass_queue(_: object) -> None:
    """Do nothing: that it runs says how far the queue of activities is."""
