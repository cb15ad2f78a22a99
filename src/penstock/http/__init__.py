"""The HTTP surfaces: each translates requests into calls of the broker, and answers back."""
