"""Programs for those who work on bushel; no part of the package."""
