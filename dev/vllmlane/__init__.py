"""vLLM on the CPU behind `tidegate gateway`, without Kubernetes, behind `dev/lane-vllm`.

Runs under the Python of an environment that has vLLM, and not in our .venv.
"""
