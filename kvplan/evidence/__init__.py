"""What engines say about themselves: their command lines, start-up logs and metrics, beside the plan."""
