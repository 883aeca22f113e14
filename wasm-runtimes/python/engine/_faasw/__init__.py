"""The engine's own modules; scripts import `faasw`."""
