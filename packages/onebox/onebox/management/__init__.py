"""The HTTP API of the Durable extension: `/runtime/webhooks/durabletask/...` over the task hub.

Owns the paths `/orchestrators`, `/instances` and `/entities`, their parameters, JSON shapes and status
codes. It keeps no state: every call goes to `onebox.hub.TaskHub`.

Main path of a call: `api.ManagementApi.answer` splits the path and dispatches to `instances` or `entities`;
these read parameters and write JSON with `payloads`. Errors of the hub become status codes in one place,
`api`:

| error | status |
|---|---|
| `BadRequestError`, `InvalidRequest` | 400 |
| `InstanceNotFound` | 404; 400 for a restart |
| `InstanceFinished` | 410 |
| `InstanceExists` | 409 |
| `WrongStatus` | 412; 409 for a restart |

A running instance is 202 with `Location` and `Retry-After`, a finished one 200.
Source: "HTTP API reference for Durable Functions", Microsoft Learn, and the extension's HttpApiHandler.
"""
