"""HTTP: the framework in which routes are declared, read and answered."""
