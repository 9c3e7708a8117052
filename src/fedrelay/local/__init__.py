"""One hop: what a client does with the model it receives."""
