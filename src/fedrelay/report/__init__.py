"""Reports on runs: the web page, figures, CSV tables and what the terminal shows."""
