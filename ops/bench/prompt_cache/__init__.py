"""What ways to keep a conversation under a budget cost at a provider with a prompt cache, and lose."""
