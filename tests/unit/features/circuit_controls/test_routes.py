import json

import azure.functions as func
import pytest

from durable_retry.features.circuit_controls.routes import routes
from durable_retry.http.routes import Route
from durable_retry.hub.task_hub import TaskHub
from durable_retry.rules.config.dependencies_file import parse_config
from durable_retry.settings.configuration import using

OFF = parse_config('[dependencies.payments]\nbase_url = "http://a.test"\ncircuit = { enabled = false }\n', {})
HUB = TaskHub(json.dumps({"rpcBaseUrl": "127.0.0.1:1"}))


@pytest.mark.parametrize("route", routes.table, ids=lambda route: route.path)
async def test_no_control_changes_a_circuit_that_is_switched_off(route: Route) -> None:
    body = json.dumps({"reason": "the supplier moves"}).encode()
    request = func.HttpRequest("POST", "http://localhost/api/x", body=body, params={}, headers={})
    with using(OFF):
        answer = await route.respond(request, HUB, {"dependency": "payments"})
    assert answer.status_code == 409
    assert json.loads(answer.get_body())["detail"] == (
        "The circuit of payments is switched off by circuit.enabled = false in dependencies.toml; "
        "to hold its calls, pause its operations by a bulk action."
    )
