"""What ``stepwell doctor`` looks at: each check says what it found and how to fix it."""

from stepwell.app.diagnosis.checks import diagnosis
from stepwell.app.diagnosis.findings import Finding, Level

__all__ = ["Finding", "Level", "diagnosis"]
