"""A team as a model, for whoever speaks the API of OpenAI. Nobody else imports it."""
