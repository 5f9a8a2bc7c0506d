"""The demo: a rollout under load by Tidegate, then the same by a plain Deployment."""
