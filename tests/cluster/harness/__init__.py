"""What the tests on a real cluster share: services and load to make, and records to judge them by."""
