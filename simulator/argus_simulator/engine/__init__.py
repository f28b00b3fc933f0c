"""The simulated job: who does what in a step, when it happens, and what goes wrong with it."""
