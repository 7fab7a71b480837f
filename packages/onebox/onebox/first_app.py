"""The app that `onebox new` writes: one orchestration, started over HTTP."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from onebox import CannotStartError

_FUNCTION_APP = '''"""Greets several cities: an HTTP function starts an orchestration, which calls an
activity per city."""

from datetime import timedelta

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.FUNCTION)


@app.route(route="greetings", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """curl -X POST http://localhost:7071/api/greetings"""
    instance_id = await client.start_new("greet_all", client_input=["Berlin", "Nairobi", "Lima"])
    return client.create_check_status_response(req, instance_id)


@app.orchestration_trigger(context_name="context")
def greet_all(context: df.DurableOrchestrationContext):
    """Runs as often as it is replayed: decide here, act in activities."""
    cities = context.get_input()
    greetings = yield context.task_all([context.call_activity("greet", city) for city in cities])
    yield context.create_timer(context.current_utc_datetime + timedelta(seconds=1))
    return greetings


@app.activity_trigger(input_name="city")
def greet(city: str) -> str:
    """Runs at least once per call; its result is stored."""
    return f"Hello, {city}!"
'''
_HOST_JSON = """{
  "version": "2.0",
  "extensions": {
    "durableTask": {
      "hubName": "FirstHub",
      "entityMessageReorderWindowInMinutes": 0
    }
  },
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.38.0, 5.0.0)"
  }
}
"""
_LOCAL_SETTINGS = """{
  "IsEncrypted": false,
  "Values": {
    "FUNCTIONS_WORKER_RUNTIME": "python",
    "AzureWebJobsStorage": "UseDevelopmentStorage=true"
  }
}
"""

FILES: Final[Mapping[str, str]] = {
    "function_app.py": _FUNCTION_APP,
    "host.json": _HOST_JSON,
    "local.settings.json": _LOCAL_SETTINGS,
    "requirements.txt": "azure-functions\nazure-functions-durable>=2.0.0rc3\n",
    ".gitignore": ".onebox/\nlocal.settings.json\n__pycache__/\n.venv/\n",
}
"""What is written, by name."""


def write_first_app(folder: Path) -> None:
    """Write the app's files; the folder is created when it is missing.

    Raises:
        CannotStartError: A file of one of the names is there already, or the folder cannot be written.
    """
    present = sorted(name for name in FILES if (folder / name).exists())
    if present:
        raise CannotStartError(f"{folder} already has {', '.join(present)}; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotStartError(f"cannot write to {folder}: {error.strerror}") from None
