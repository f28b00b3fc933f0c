"""The demo: a slow rank found, routed and explained, for a person in under two minutes."""
