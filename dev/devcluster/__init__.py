"""The development cluster behind `dev/cluster`: standard library only, so that it runs before anything is installed."""
