"""App settings of the app itself: its files and limits."""

from importlib import metadata
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator

from durable_retry.settings.group import SettingsGroup, setting

_KIB: Final = 1024


def _check_trace_url(url: str) -> str:
    if url and (not url.lower().startswith(("https://", "http://")) or "{trace_id}" not in url):
        raise ValueError(f"must be an http(s) URL with {{trace_id}} in it, not {url!r}")
    return url


_PACKAGE_PREFIX: Final = "package:"


def _version_of(text: str) -> str:
    if not text.startswith(_PACKAGE_PREFIX):
        return text
    try:
        return metadata.version(text.removeprefix(_PACKAGE_PREFIX))
    except (metadata.PackageNotFoundError, ValueError):
        raise ValueError(f"must name a package that is installed, not {text!r}") from None


class AppSettings(SettingsGroup):
    """The app's own settings."""

    heading: ClassVar[str] = "The app"

    dependencies_file: str = setting(
        "The file with the dependencies, beside `function_app.py`.", "dependencies.toml"
    )
    app_version: Annotated[str, AfterValidator(_version_of)] = setting(
        "The app's version, which attempts and dead letters carry; `package:NAME` is that of an installed "
        "package. Not set: they carry none."
    )
    trace_url: Annotated[str, AfterValidator(_check_trace_url)] = setting(
        "Where a trace is looked at, an http(s) URL with `{trace_id}` in it; traced operations link to it. "
        "Not set: no link."
    )
    max_body_bytes: int = setting(
        "The largest body of a request or message, and the largest item of a batch.",
        64 * _KIB,
        unit="bytes",
        least=1,
        # A dead letter is one row of at most 1 MiB, and a character that is not ASCII can take twelve bytes.
        most=128 * _KIB,
    )
    response_read_limit_bytes: int = setting(
        "The largest part of a dependency's answer that is read.", 1024 * _KIB, unit="bytes", least=1
    )
    response_store_limit_bytes: int = setting(
        "The largest part of an answer that a result keeps; a cut is marked.",
        16 * _KIB,
        unit="bytes",
        least=1,
    )
    result_inline_bytes: int = setting(
        "The largest result that histories and records carry; a larger one is stored once, beside them. "
        "During a deploy over a version without this setting: 10000000.",
        4 * _KIB,
        unit="bytes",
        least=0,
    )
    azure_functions_durable_strict_typing: str = setting(
        "The Durable SDK's own; the app switches it on unless it is set. Leave it on: with `0`, JSON from "
        "callers can name classes.",
        "1",
    )
    script_root: str = setting(
        "The folder of host.json; the host's. Not set: the current folder.", name="AzureWebJobsScriptRoot"
    )
