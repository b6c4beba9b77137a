"""How far what is published may lie from retraining: estimate, certificates, certified removal."""
