"""A stored execution run again without models and tools."""
