"""HTTP-date in its three forms (RFC 9110 section 5.6.7)."""

import re
from datetime import UTC, datetime
from typing import Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_MONTH: Final = r"(?P<month>[A-Za-z]{3})"
_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        rf"[A-Za-z]{{3}}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT",
        rf"[A-Za-z]{{6,9}}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT",
        rf"[A-Za-z]{{3}} {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_CENTURY: Final = 100
_FUTURE_YEARS: Final = 50


def parse_http_date(text: str, now: datetime) -> datetime | None:
    """Read an HTTP-date; None when the text is none. A leap second counts as the second before it.

    Args:
        text: IMF-fixdate, or the obsolete forms of RFC 850 and asctime.
        now: Settles the century of a two-digit year: more than 50 years ahead means the past.
    """
    match = next((found for form in _FORMS if (found := form.fullmatch(text.strip()))), None)
    if match is None or match["month"].lower() not in _MONTHS:
        return None
    year = int(match["year"])
    if year < _CENTURY and len(match["year"]) == 2:  # noqa: PLR2004  two digits, as RFC 850 writes
        year = _full_year(year, now)
    try:
        return datetime(
            year,
            _MONTHS.index(match["month"].lower()) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            min(int(match["second"]), 59),
            tzinfo=UTC,
        )
    except ValueError:
        return None


def _full_year(year: int, now: datetime) -> int:
    full = now.year - now.year % _CENTURY + year
    return full - _CENTURY if full > now.year + _FUTURE_YEARS else full
