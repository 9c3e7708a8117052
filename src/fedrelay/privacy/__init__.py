"""Differential privacy: accounting, hop budgets, and combinations that are refused."""
