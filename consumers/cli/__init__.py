"""The command ``lethe``: one file a subject. `consumers.cli.main` puts them together."""
