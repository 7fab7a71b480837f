"""Another folder of the app's own."""

CURRENCY = "EUR"
