"""Real processes for tests: started, waited for and ended within bounds."""
