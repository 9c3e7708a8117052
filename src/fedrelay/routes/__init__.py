"""Routes: how models travel in a round. One file per way of travelling; `plan` holds the data they make."""
