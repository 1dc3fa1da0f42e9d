"""The policy engine: samples answers, token by token, from the newest version of the policy that is being trained."""
