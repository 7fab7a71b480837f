"""Credentials beside a fixed header: tokens of the app's identity or of OAuth, and client certificates."""

from typing import Final

from durable_retry.plugins import Plugin

PLUGIN: Final = Plugin(
    name="credentials",
    dependency="durable_retry.features.credentials.tables:CredentialKeys",
    of_core=("auth.identity", "auth.oauth"),
    check="durable_retry.features.credentials.tables:problems_of_certificate",
    transport="durable_retry.features.credentials.transport:signed",
    tls="durable_retry.features.credentials.transport:show_certificate",
)
