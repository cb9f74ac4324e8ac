"""Files of others become specs: config.json, safetensors headers, GGUF headers. Read only, nothing is executed."""
