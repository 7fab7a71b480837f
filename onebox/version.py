"""Which host onebox stands in for."""

# The major version of the Functions host whose behaviour onebox follows, then onebox's own.
VERSION = "4.0.1"
