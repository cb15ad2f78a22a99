"""The durable record in MongoDB of what a hot store keeps: see docs/mongo.md."""
