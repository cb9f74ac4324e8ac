"""What a user can write down: models, GPUs and formats, and the strict reader of their files."""
