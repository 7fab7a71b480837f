"""The worker: the app's functions, run through the library that the Azure worker itself runs."""
