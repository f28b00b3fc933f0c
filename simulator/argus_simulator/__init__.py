"""The fault lab: a simulated training job that speaks the exporter's protocol, and a stack to play it to.

It meets the other components only where a real job would: at the exporter's socket, at Prometheus and at
Alertmanager. It imports neither the exporter nor the worker; it starts them as processes.
"""
