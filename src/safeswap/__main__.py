"""``python -m safeswap`` is ``safeswap``."""

from safeswap.cli import main

if __name__ == "__main__":
    main()
