"""A server's own command line, read: `parse_launch('vllm serve ORG/NAME ...')`."""

from kvplan.evidence.launch.parse import Launch, Said, parse_launch

__all__ = ["Launch", "Said", "parse_launch"]
