"""What became of one request (`lethe receipt`). May import all of `consumers.audit` but `health`.

- `report`: how a request was sent, processed and published
- `proof`: its receipt with its place in the receipt log, as third-party verifiers read it
- `rows`: its rows, and what is left of them
"""
