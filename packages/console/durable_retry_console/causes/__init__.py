"""Root causes of dead letters: what they have in common, and what people did about them."""
