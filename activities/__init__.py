"""The steps that touch the world: one attempt, one commit, one dead letter."""
