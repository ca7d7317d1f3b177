"""What STONet is measured against: floors that every forecaster must beat, and published models."""
