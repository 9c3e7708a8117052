"""Running an experiment: the round loop, the server, the records, the run folder and the result."""
