"""What `ONEBOX_SEMANTICS` asks for: the task hub's own terms, or the weaker ones of Azure Storage."""

import logging
import re
import secrets
from typing import Final

from onebox import CannotStartError
from onebox.durable_task import StorageProvider
from onebox.environment import SEMANTICS, AppSettings
from onebox.hub.settings import AzureTerms

_LOG = logging.getLogger("onebox")
_SEEDS: Final = 1_000_000
_SHARE: Final = r"0?\.\d+|0|1"
_SEMANTICS: Final = re.compile(
    rf"azure(?::(?P<seed>\d+))?(?:,died=(?P<died>{_SHARE}))?"
    rf"(?:,unanswered=(?P<unanswered>{_SHARE}))?(?:,hidden=(?P<hidden>\d*\.?\d+))?",
    re.ASCII,
)


def azure_terms(settings: AppSettings, storage: StorageProvider) -> AzureTerms | None:
    """Return the weaker terms that the environment asks for; None for the task hub's own.

    Args:
        settings: The environment.
        storage: The storage of host.json: it says for how long what was fetched is hidden, unless the
            environment does.

    Raises:
        CannotStartError: It asks for something else.
    """
    asked = settings.get(SEMANTICS.name)
    if not asked:
        return None
    form = _SEMANTICS.fullmatch(asked)
    if form is None:
        raise CannotStartError(
            f"{SEMANTICS.name} must be azure, or azure: and a whole number; then may follow, in this order, "
            "the share of work whose worker dies, that of fetches without an answer, and how many seconds "
            f"what was fetched is hidden, as in azure:7,died=0.05,unanswered=0.01,hidden=60; it is {asked!r}"
        )
    hidden = None if form["hidden"] is None else float(form["hidden"])
    control, work = storage.control_queue_visibility_timeout, storage.work_item_queue_visibility_timeout
    terms = AzureTerms(
        secrets.randbelow(_SEEDS) if form["seed"] is None else int(form["seed"]),
        died=float(form["died"] or 0),
        unanswered=float(form["unanswered"] or 0),
        control_hidden_seconds=control.total_seconds() if hidden is None else hidden,
        work_hidden_seconds=work.total_seconds() if hidden is None else hidden,
    )
    _LOG.warning(
        "the task hub has the weaker terms of Azure Storage: again with %s=azure:%d",
        SEMANTICS.name,
        terms.seed,
    )
    return terms
