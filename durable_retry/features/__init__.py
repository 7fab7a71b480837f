"""Features: each is a folder that plugs in; the core imports none of them."""
