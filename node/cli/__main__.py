"""`python -m kakeya_fleet.node.cli` is `fleet`."""

from kakeya_fleet.node.cli.main import main

if __name__ == "__main__":
    main()
