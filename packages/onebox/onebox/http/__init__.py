"""The web server: the app's HTTP functions and the host's own endpoints.

Owns the listening socket, the routes of HTTP functions, access checks, and `/admin`. What lies below
`/runtime/webhooks` is registered with `Application.webhooks`: the Durable extension's API (`management`) and
`triggers.event_grid`.

Main path of a request:

1. `server.Application` checks the Host and Origin headers and the access key (`access`),
2. finds the endpoint by route template and method (`functions`, `routes`),
3. reads the body up to its limit and builds the trigger's data (`messages`), or opens a stream (`streams`),
4. runs the function on the worker, sends its output bindings, and writes its response.

Answers of its own: 400 (the client left while sending), 401 (no valid key), 403 (foreign Host or Origin),
404 (no such route or method), 413 (body over the limit), 415 (not JSON where JSON is required), 429 (too
many requests under way), 500 with an empty body (the function failed), 503 (stopping). `server.Admin.state`
is Initialized, Running or Stopping.

Errors at start: `routes.RouteError` (malformed template), `CannotStartError` (port in use, bad setting).
"""
