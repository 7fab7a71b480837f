"""The function app: Durable Retry and the app's own handlers, nothing else. The host indexes this file."""

import azure.durable_functions as df

import durable_retry

app = df.DFApp()
durable_retry.register(app, handlers=["activities.handlers"])
