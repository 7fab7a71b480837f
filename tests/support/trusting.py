"""Lets the app trust the certificate that TRUSTED_CERTIFICATE names; tests name this module in HANDLERS."""

import os
import ssl

from durable_retry.attempt import http_client


def _trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ["TRUSTED_CERTIFICATE"])


http_client._new_tls = _trusting
