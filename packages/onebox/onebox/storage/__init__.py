"""Azure Storage: the emulator, and queues for triggers and output bindings."""
