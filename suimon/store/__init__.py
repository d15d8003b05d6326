"""What runs read beside themselves: secrets."""
