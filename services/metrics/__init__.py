"""Training curves, and figures for Prometheus."""
