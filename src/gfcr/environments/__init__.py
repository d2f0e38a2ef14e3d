"""What a rollout interacts with: tools, interpreters, databases, machines."""
