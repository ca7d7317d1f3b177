"""`python -m stonet`, and so `torchrun -m stonet`: the command line."""

from stonet.cli import main

if __name__ == "__main__":
    main()
