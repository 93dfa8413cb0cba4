"""Run the command line as ``python -m safeswap``."""

from safeswap.cli import main

if __name__ == "__main__":
    main()
