"""The process: its clock, its event loop, and imports that wait until they are needed."""
