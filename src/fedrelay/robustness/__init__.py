"""What can go wrong and who attacks: faults, the guard at every hop, attacks."""
