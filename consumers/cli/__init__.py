"""The command ``lethe``: one module per subcommand, joined in `consumers.cli.main`."""
