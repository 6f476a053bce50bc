"""A scriptable OpenAI-compatible server with every failure real ones have. Synthetic by nature:
nothing measured with it says anything about a real engine."""
