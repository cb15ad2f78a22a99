"""Who may use the server: users, their roles, passwords and tokens, and who a caller is."""
