"""A model that is none: rules that plan, work and write without a language model, behind the same protocol."""
