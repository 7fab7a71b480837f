"""App settings, from their catalogue."""

from collections.abc import Iterable, Iterator

from stores.setting import Number, Setting
from stores.setting_catalogue import CATALOGUE
from tools.settings_reference.markdown import shown, span, table, words

HEAD = ("app setting", "default", "unit", "range", "what it is")


def app_settings() -> Iterator[str]:
    """Give a section for each group."""
    for group, settings in CATALOGUE.items():
        yield f"### {group}"
        yield table(HEAD, _rows(settings))


def _rows(settings: Iterable[Setting]) -> Iterator[tuple[str, ...]]:
    for setting in settings:
        unit, allowed = _unit_and_range(setting)
        yield f"`{setting.name}`", shown(setting.default), unit, allowed, setting.meaning


def _unit_and_range(setting: Setting) -> tuple[str, str]:
    if isinstance(setting, Number):
        return setting.unit, span(setting.least, setting.most)
    return "secret" if setting.secret else "", words(setting.choices)
