"""What the operator believes of Kubernetes, as rows that hold in simulation and on a real cluster alike."""
