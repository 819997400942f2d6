"""Explanations, statistics, profiles, recordings: values, and their texts and pages."""
