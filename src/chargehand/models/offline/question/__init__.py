"""What a question asks of a database: its words held against a schema, part by part."""
