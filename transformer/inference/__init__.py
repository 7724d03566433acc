"""Using a trained model: sampling, generating and evaluating."""
