"""The version of stonet: kept here so that no module has to import the package itself."""

__version__ = "0.2.0"
