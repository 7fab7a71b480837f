"""The console: what people look at. The core never imports it; an app can leave it out."""
