"""`python -m gfcr`: the command line."""

from gfcr.cli.main import app

if __name__ == "__main__":
    app(prog_name="gfcr")
