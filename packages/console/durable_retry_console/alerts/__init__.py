"""Alerts: health metrics above their thresholds, and the messages about them."""
