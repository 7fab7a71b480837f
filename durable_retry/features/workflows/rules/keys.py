"""The ids of batches and sagas."""

from durable_retry.rules.operations.keys import operation_id_for


def workflow_id_for(source: str, key: str) -> str:
    """Return the id of the batch or the saga of a caller's key; `source` is `batch` or `saga`."""
    return workflow_id(source, f"given:{key}")


def workflow_id(source: str, name: str) -> str:
    """Return the id of a batch or a saga: the same for the same name on every machine."""
    return f"{source}-{operation_id_for(f'{source}:', name).removeprefix('op-')}"
