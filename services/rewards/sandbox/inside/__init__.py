"""What runs within the walls, on the standard library alone: it shares no code with the service outside."""
