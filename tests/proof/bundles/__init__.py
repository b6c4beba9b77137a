"""Both verifiers of exported histories, `lethe audit --bundle` and the page, against each other."""
