"""What clients may do against the others, to see what methods withstand."""
