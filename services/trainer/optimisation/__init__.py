"""Policy optimisation: TRL's GRPOTrainer on groups that the rollout broker sampled and rewards scored."""
