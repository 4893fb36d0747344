"""`python -m likelyshot` is the command line too, as torchrun needs it."""

from likelyshot.cli import main

if __name__ == "__main__":
    main()
