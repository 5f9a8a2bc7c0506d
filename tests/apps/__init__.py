"""A streaming service that speaks the drain contract, and a client that checks every stream; standard library only."""
