"""The tables of libraries, held against the libraries: a class that is renamed is seen at the next pin."""

from importlib import import_module

from durable_retry.base.foreign import _names_of_class
from durable_retry.features.handlers.rules.libraries import _KNOWN

MODULES = """
aiohttp anthropic azure.core.exceptions azure.cosmos.exceptions azure.eventhub.exceptions
azure.servicebus.exceptions botocore.exceptions bson.errors durable_retry.handlers google.api_core.exceptions
google.auth.exceptions grpc httpx httpx2 openai psycopg.errors pymongo.errors redis.exceptions
requests.exceptions sqlalchemy.exc stripe urllib3.exceptions
"""
"""They are imported where they are used: together they take seconds."""


def names_of_classes() -> set[str]:
    """Return each name by which an exception of these modules is known."""
    for module in MODULES.split():
        import_module(module)
    left, names = {BaseException}, dict[type[BaseException], tuple[str, ...]]()
    while left:
        names |= {cls: _names_of_class(cls) for cls in left}
        left = {below for cls in left for below in type.__subclasses__(cls)} - names.keys()
    return {name for of_class in names.values() for name in of_class}


def test_each_class_of_the_tables_is_one_that_its_library_has() -> None:
    there = names_of_classes()
    # One with a code has its class before the last point.
    missing = [name for name in _KNOWN if not there & {name, name.rpartition(".")[0]}]
    assert missing == []
