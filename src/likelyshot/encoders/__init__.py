"""From images and texts to vectors."""
