"""The model: attention, positions, layers and the Transformer that joins them."""
