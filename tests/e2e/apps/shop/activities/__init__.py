"""A folder of the app's own, with a name that the engine has too."""


def priced(order: str) -> int:
    return len(order)
