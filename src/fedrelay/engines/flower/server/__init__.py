"""What the server asks of nodes, and what it does with their replies."""
