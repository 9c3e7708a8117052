"""The server's side: it sends requests to nodes and checks their replies."""
