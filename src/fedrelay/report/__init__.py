"""Reports: tables for the terminal, plots, progress, and the numbers behind them."""
