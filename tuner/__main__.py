"""`python -m tuner` is `tuner`."""

from __future__ import annotations

from tuner.cli.app import main

if __name__ == "__main__":
    main()
