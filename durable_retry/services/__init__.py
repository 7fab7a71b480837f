"""One module per use case; triggers and activities call these."""
