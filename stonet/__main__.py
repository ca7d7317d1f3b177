"""The command line as `python -m stonet`, and so as `torchrun -m stonet`."""

from stonet.cli import main

if __name__ == "__main__":
    main()
