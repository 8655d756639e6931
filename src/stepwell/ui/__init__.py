"""What browsers are given: ES modules without a build step."""
