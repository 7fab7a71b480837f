"""App settings: the catalogue, how each is read, and what the process loads at start."""
