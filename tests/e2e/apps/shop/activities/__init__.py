"""A folder of the app's own, with a name that the engine has too."""


def priced(order: str) -> int:
    """Price an order by its length."""
    return len(order)
