"""The worker: the app's functions, loaded and run through the library that the Azure worker itself runs.

- `functions`: what the app declares, and how it is loaded.
- `runner`: runs one function once, on an event loop apart from the web server's.
- `durable`, `executors`: orchestrators, entities and activities, as the task hub asks for them.
- `outputs`: sends what a function put into its output bindings.

Errors: `FunctionFailedError` (a function raised, or its result could not be used), `AppLoadError` at start.
"""
