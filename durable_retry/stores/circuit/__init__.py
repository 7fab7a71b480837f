"""The state of circuits: their entities, and the snapshots of this process."""
