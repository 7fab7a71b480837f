"""Clients, tables and queues of the storage account."""
