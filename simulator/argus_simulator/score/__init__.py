"""`argus-simulator score`: plays the fault catalogue and says what was found."""
