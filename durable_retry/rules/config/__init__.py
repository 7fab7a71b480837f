"""The dependencies and the file that describes them."""
