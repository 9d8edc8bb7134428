"""A streaming gateway for LLM traffic: every byte arrives, every event is right, every token is billed."""
