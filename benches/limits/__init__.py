"""What limits of several machines cost."""
