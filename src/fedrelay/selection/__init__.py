"""Client selection: all clients, random ones, or those that a genetic search finds."""
