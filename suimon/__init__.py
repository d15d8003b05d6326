"""Suimon: durable pipelines on PostgreSQL alone."""
