"""Looking into a model: attention maps, their pictures, and TensorBoard."""
