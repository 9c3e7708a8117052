"""What rounds cost: transfers, bytes and virtual time."""
