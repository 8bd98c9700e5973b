"""What the policy minimises: residual first, then loss, then the objective that feeds them."""
