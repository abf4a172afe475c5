"""What touches the world: the store, the index, the models, the engine."""
