"""How far what is published may lie from retraining: estimate, certificates, certified removal.

Imports `engine.fit` and `engine.deletion`; from `engine.refresh`, only how arrays are taken apart
into blocks. `budget` imports nothing: a command line need not wait for NumPy.

- `estimate`: the error that the budget counts
- `sentinels`: live rows sampled for it
- `attainable`: the least error of a version with new rows, whatever is refitted
- `stiffness`: how much of a quadratic model is left in the direction that lost most
- `certificate`: bounds that a pass over the live rows proves
- `coupled`: the same of a softmax model
- `coupled_sample`: the estimate of one, from its sentinels
- `certified`: certified removal, the gradient residual that the noise has to hide
- `terms`: what is promised, by noise in the objective or on the output
- `gaussian`: the Gaussian mechanism, and noise from the operating system's randomness
- `drift`: whether the claims of a generation still hold, measured on live rows
- `second_opinion`: its spectrum and its distance to the optimum by the rows, without V
- `budget`: whether an error is over its budget
"""
