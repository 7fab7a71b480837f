"""Values that a test needs to be there, for the type checker as well."""


def existing[T](value: T | None) -> T:
    assert value is not None
    return value


def of_type[T](cls: type[T], value: object) -> T:
    assert isinstance(value, cls), repr(value)
    return value


def second_of_type[S, T](cls: type[T], pair: tuple[S, object]) -> tuple[S, T]:
    first, second = pair
    return first, of_type(cls, second)
