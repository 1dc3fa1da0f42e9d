"""The rollout broker: runs the agent loop of every sample against the policy and keeps what was sampled, token by token."""
