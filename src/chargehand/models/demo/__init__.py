"""Demo model: rules that plan, call tools and write answers behind the model protocol. No language model is asked."""
