"""Differential privacy: accounting, visit budgets and what is refused."""
