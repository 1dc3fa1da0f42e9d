"""Nodes, GPUs, queues and leases; starts and stops trainer work on a backend."""
