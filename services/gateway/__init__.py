"""The only public door: REST, live streams and the web page, each call one request to the service that owns the answer."""
