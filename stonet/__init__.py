"""stonet."""
