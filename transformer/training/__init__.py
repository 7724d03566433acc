"""Training: the loop, its optimizers and schedule, checkpoints, and the device it runs on."""
