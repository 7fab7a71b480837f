"""History export: the histories of ended instances, written to files."""

import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func
from azure.durable_functions.internal.azurefunctions_grpc_interceptor import (
    AzureFunctionsDefaultClientInterceptorImpl,
)
from azure.durable_functions.internal.serialization import DEFAULT_FUNCTIONS_DATA_CONVERTER
from durabletask.client import TaskHubGrpcClient
from durabletask.extensions.history_export import (
    AsyncExportHistoryClient,
    ExportDestination,
    ExportFormat,
    ExportFormatKind,
    ExportHistoryClient,
    ExportJobCreationOptions,
    ExportMode,
)

blueprint = df.Blueprint(http_auth_level=func.AuthLevel.ANONYMOUS)


class FileWriter:
    """Puts each history into a file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(
        self,
        *,
        instance_id: str,  # noqa: ARG002 # the protocol of the SDK
        container: str,
        blob_name: str,
        payload: bytes,
        content_type: str,  # noqa: ARG002 # the protocol of the SDK
        content_encoding: str | None = None,  # noqa: ARG002 # the protocol of the SDK
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002 # the protocol of the SDK
    ) -> None:
        path = self._root / container / blob_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload)


WRITER = FileWriter(Path(os.environ.get("EXPORT_FOLDER") or tempfile.gettempdir()))


@blueprint.route(route="exports/{job}", methods=["POST"])
@blueprint.durable_client_input(client_name="client")
async def create_export(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    options = ExportJobCreationOptions(
        mode=ExportMode.BATCH,
        completed_time_from=datetime.now(UTC) - timedelta(hours=1),
        completed_time_to=datetime.now(UTC) + timedelta(hours=1),
        destination=ExportDestination(container=req.route_params["job"]),
        format=ExportFormat(kind=ExportFormatKind.JSON),
    )
    await AsyncExportHistoryClient(client, WRITER).create_job(options, job_id=req.route_params["job"])
    return func.HttpResponse(status_code=202)


@blueprint.route(route="exports/{job}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def read_export(req: func.HttpRequest, client: df.DurableFunctionsClient) -> func.HttpResponse:
    """Asks with a client that blocks the event loop, as Microsoft's own tests do."""
    blocking_client = TaskHubGrpcClient(
        host_address=client.rpcBaseUrl,
        interceptors=[
            AzureFunctionsDefaultClientInterceptorImpl(
                client.taskHubName, client.requiredQueryStringParameters
            )
        ],
        data_converter=DEFAULT_FUNCTIONS_DATA_CONVERTER,
    )
    with blocking_client:
        job = ExportHistoryClient(blocking_client, WRITER).get_job(req.route_params["job"])
    if job is None:
        return func.HttpResponse(status_code=404)
    state = {"status": job.status.name, "exported": job.exported_instances, "error": job.last_error}
    return func.HttpResponse(json.dumps(state), mimetype="application/json")
