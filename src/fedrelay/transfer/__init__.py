"""How models are encoded where they are sent. One file for each codec."""
