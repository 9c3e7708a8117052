"""The experiment: its spec, the catalogue of methods, and how it is prepared to run."""
