"""`python -m scripts.smoke URL [--function-key KEY]`: checks in a minute that a deployed app works.

It reads the health, lets `retryctl doctor` go through the parts, posts a bad request, and takes one operation
through a failed attempt, a wait and a cancellation, which needs an orchestration, an activity, both entities
and a durable timer. The operation calls `--dependency` of the app's dependencies file (default `flaky`, which
the shipped parameters point at no host), on a path that no service has. Nothing is left but a cancelled
operation and a diagnosis.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import httpx

from retryctl.cli import main as retryctl

PATIENCE_SECONDS: Final = 180
"""A cold start, the first polls of quiet queues, and one attempt."""


class SmokeError(Exception):
    """Something did not go as it should; the message is for a person."""


def expect(answer: httpx.Response, status: int) -> Any:
    """Return the JSON body of an answer that has a status.

    Raises:
        SmokeError: It has another.
    """
    if answer.status_code != status:
        place = f"{answer.request.method} {answer.request.url.path}"
        raise SmokeError(f"{place} answers {answer.status_code}, not {status}: {answer.text[:500]}")
    return answer.json()


def until(
    look: Callable[[], dict[str, Any]], is_there: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    """Return a document once it is as wanted.

    Raises:
        SmokeError: It does not become so in time.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_there(document := look()):
        if time.monotonic() > end:
            raise SmokeError(f"{what}: not within {PATIENCE_SECONDS} s; the last document is {document}")
        time.sleep(1)
    return document


def diagnose(client: httpx.Client, master_key: str) -> None:
    """Let `retryctl doctor` name the first part that does not work.

    Raises:
        SmokeError: There is one; its lines say which.
    """
    key = client.headers.get("x-functions-key")
    command = ["doctor", str(client.base_url), *(["--function-key", key] if key else [])]
    if master_key:
        command += ["--master-key", master_key]
    if retryctl(command) != 0:
        raise SmokeError("a part of the app does not work: see the lines of the doctor")


def smoke(client: httpx.Client, dependency: str, master_key: str = "") -> None:
    """Run all checks, and print a line for each that passed.

    Raises:
        SmokeError: One of them failed.
    """

    def health() -> dict[str, Any]:
        answer = client.get("/api/health")  # While the app starts, the platform answers.
        is_json = "json" in answer.headers.get("content-type", "")
        return answer.json() if is_json else {"status": answer.status_code}

    until(health, lambda found: found["status"] == "healthy", "the app is healthy")
    print("healthy", flush=True)
    diagnose(client, master_key)
    expect(client.post("/api/operations", json={"dependency": dependency}), 400)
    print("a bad request is refused")
    key = f"smoke-{uuid.uuid4()}"
    operation = {
        "dependency": dependency,
        "key": key,
        "request": {"method": "GET", "path": f"/{key}"},
        "retry": {"strategy": "fixed", "initial_seconds": 60, "max_seconds": 60, "jitter": "none"},
    }
    accepted = expect(client.post("/api/operations", json=operation), 202)
    path = f"/api/operations/{accepted['operation_id']}"

    def status() -> dict[str, Any]:
        document: dict[str, Any] = expect(client.get(path), 200)
        if document["status"] in {"succeeded", "dead_lettered"}:
            raise SmokeError(f"{dependency} answers: name another, whose host does not, by --dependency")
        return document

    waiting = ("waiting_retry", "waiting_throttle", "waiting_circuit")
    document = until(status, lambda found: found["status"] in waiting, "the operation waits after an attempt")
    print(f"an operation is {document['status']} after {document['attempt_count']} attempt(s)")
    expect(client.post(f"{path}/cancel"), 202)
    until(status, lambda found: found["status"] == "cancelled", "the operation is cancelled")
    print("it is cancelled")


def main() -> None:
    """Read the arguments and run the checks."""
    parser = argparse.ArgumentParser(prog="python -m scripts.smoke", description="Checks a deployed app.")
    parser.add_argument("url", help="of the app, like https://func-abc.azurewebsites.net")
    parser.add_argument("--function-key", default="", help="a function key, where the app asks for one")
    parser.add_argument("--master-key", default="", help="shows the version of the host")
    parser.add_argument(
        "--dependency", default="flaky", help="a dependency whose host does not answer (default: flaky)"
    )
    arguments = parser.parse_args()
    headers = {"x-functions-key": arguments.function_key} if arguments.function_key else {}
    with httpx.Client(base_url=arguments.url, headers=headers, timeout=60) as client:
        try:
            smoke(client, arguments.dependency, arguments.master_key)
        except (SmokeError, httpx.TransportError, ValueError) as error:
            sys.exit(f"smoke: {error}")


if __name__ == "__main__":
    main()
