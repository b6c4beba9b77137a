"""What a reader of models needs: verified versions, and parameters to predict with.

May import `consumers.commits` and the packages below it.
"""
