"""What happened and who did it, over all parts of the app."""
