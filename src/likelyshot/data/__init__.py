"""What is read and written: features, tasks, results, images."""
