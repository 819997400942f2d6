"""Methods of datasets beyond those of Grain, by what they are about."""
