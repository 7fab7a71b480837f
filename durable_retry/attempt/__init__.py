"""One attempt: admission, the call of a dependency or a handler, its outcome, its commit."""
