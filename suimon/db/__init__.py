"""PostgreSQL plumbing: connections, statements, schema, the embedded server."""
