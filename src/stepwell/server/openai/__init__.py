"""OpenAI's API in front of the agents: chat completions, responses and models.

A model is an agent, and every request is a message of a session, under the same authentication and
policies as the other routes.
"""
