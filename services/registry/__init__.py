"""The registry: what exists (workspaces, keys, projects, datasets, code, models) and the status of every run."""
