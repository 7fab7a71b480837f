"""The rules of retrying: pure functions over frozen values. Time and draws come in as arguments."""
