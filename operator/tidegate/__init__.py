"""Tidegate: safe rollouts of LLM services on Kubernetes."""

__version__ = "0.1.0"
