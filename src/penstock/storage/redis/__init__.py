"""The Redis backend: any number of servers over one Redis or Valkey."""
