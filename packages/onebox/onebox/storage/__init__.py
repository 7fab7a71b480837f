"""Azure Storage: the emulator, and queues for triggers and output bindings.

Owns the Azurite child process of a data folder, and one client per queue and account. Blobs are written by
`onebox.worker.outputs`; tables are left to the app.

- `account`: which account the app uses: its own emulator, one that is joined, or an external one.
- `azurite`: starts Azurite, waits until it serves, stops it. States: not started, serving, stopped. A file
  lock in its folder is held by the emulator itself, so a successor waits until a killed one has ended.
- `queues`: receive, hide, delete and put, on a few threads around the blocking SDK; the message encoding.

Errors: `CannotStartError` (Node or Azurite missing, port taken, no answer in time), `MessageLostError` (the
pop receipt is no longer valid), `UndecodableError` (not in the configured encoding), and the SDK's
`AzureError`.
"""
