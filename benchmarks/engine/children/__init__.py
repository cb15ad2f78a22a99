"""Processes of their own: what must be measured alone, or be killed. One module each."""
