"""Which clients take part: all, random ones, or those that a genetic search finds."""
