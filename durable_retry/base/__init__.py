"""JSON, validation, names, masking: what every rule is made of."""
