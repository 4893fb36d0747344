"""What a few labelled examples say: how sure a method may be, what to expect of it, what is unknown."""
