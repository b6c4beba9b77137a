"""What every process needs: settings, connections, logs, metrics, health.

May import `consumers.contract`, `consumers.log` and the engine.
"""
