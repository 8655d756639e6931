"""What the shop expects of its prices."""

import unittest

from prices import total


class Total(unittest.TestCase):
    def test_without_discount(self) -> None:
        self.assertEqual(total([1000, 500], 0, 20), 1800)

    def test_with_discount(self) -> None:
        self.assertEqual(total([1000, 500], 10, 20), 1620)


if __name__ == "__main__":
    unittest.main()
