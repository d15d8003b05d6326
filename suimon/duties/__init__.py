"""Who keeps time: the slow safety sweep and what it repairs."""
