"""Finding operations and everything else by their words, states and times."""
