"""From the socket to the ranks: who may connect, and the records of each connection, checked."""
