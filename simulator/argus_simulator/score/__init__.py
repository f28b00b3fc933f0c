"""`argus-simulator score`: plays the fault catalogue against the real stack and says what was found."""
