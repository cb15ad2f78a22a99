"""The API described: what routes say about themselves, as OpenAPI, as a page, and for Postman."""
