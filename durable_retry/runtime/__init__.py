"""What the process gives: the time, one event loop, imports when they are needed."""
