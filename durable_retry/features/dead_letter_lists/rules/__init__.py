"""What lists of dead letters mean and show."""
