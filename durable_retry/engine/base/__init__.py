"""What every rule uses: instants, JSON, validation, names and counts. No rule of a feature."""
