"""The URLs of the Durable HTTP management API."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

WEBHOOK_PATH = "/runtime/webhooks/durabletask"
INSTANCE_PLACEHOLDER = "INSTANCEID"  # what the SDK replaces in the templates


@dataclass(frozen=True)
class DurableUrls:
    """Builds URLs for one task hub.

    Attributes:
        base_url: Where we serve HTTP, like `http://127.0.0.1:7071`.
        hub_name: The task hub's name.
        code: The system key that the API requires; None when it is open.
    """

    base_url: str
    hub_name: str
    code: str | None = None

    @property
    def webhook(self) -> str:
        """What all URLs begin with."""
        return self.base_url + WEBHOOK_PATH

    @property
    def query(self) -> str:
        """The parameters that every URL carries."""
        parameters = {"taskHub": self.hub_name, "connection": "Storage"}
        if self.code is not None:
            parameters["code"] = self.code
        return "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())

    def creation(self) -> Mapping[str, str]:
        """Return the templates for starting an orchestration."""
        create = f"{self.webhook}/orchestrators/{{functionName}}[/{{instanceId}}]?{self.query}"
        wait = f"{create}&timeout={{timeoutInSeconds}}&pollingInterval={{intervalInSeconds}}"
        return {"createNewInstancePostUri": create, "createAndWaitOnNewInstancePostUri": wait}

    def management(self, instance_id: str = INSTANCE_PLACEHOLDER) -> Mapping[str, str]:
        """Return the URLs for one instance; without an id, the templates for any."""
        instance = f"{self.webhook}/instances/{quote(instance_id, safe='')}"
        with_reason = {
            f"{action}PostUri": f"{instance}/{action}?reason={{text}}&{self.query}"
            for action in ("terminate", "rewind", "suspend", "resume")
        }
        return {
            "id": instance_id,
            "statusQueryGetUri": f"{instance}?{self.query}",
            "sendEventPostUri": f"{instance}/raiseEvent/{{eventName}}?{self.query}",
            "purgeHistoryDeleteUri": f"{instance}?{self.query}",
            "restartPostUri": f"{instance}/restart?{self.query}",
            **with_reason,
        }
