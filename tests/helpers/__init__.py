"""What several test files share: small data, reference formulas, contracts of all models."""
