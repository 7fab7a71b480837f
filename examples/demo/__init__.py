"""`make demo`: the whole system on a scripted scenario, told as a timeline."""
