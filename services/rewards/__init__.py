"""Rewards: scores trajectories with other people's code, inside walls, and serves their MCP tools to rollouts."""
