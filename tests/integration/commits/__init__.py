"""The commit, on real servers: crashes, take-overs, folds, a store that went back."""
