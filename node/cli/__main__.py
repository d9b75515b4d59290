"""`python -m node.cli` is `fleet`."""

from node.cli.main import main

if __name__ == "__main__":
    main()
