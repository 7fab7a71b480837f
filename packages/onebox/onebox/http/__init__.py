"""The web server: the app's HTTP functions and the host's own endpoints."""
