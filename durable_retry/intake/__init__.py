"""Every way in: HTTP, the queue, and what all sources share."""
