"""The server's side: what it asks of nodes, and what it does with their replies."""
