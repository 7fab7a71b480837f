"""One attempt: admission, the call of a dependency or a handler, and its outcome."""
