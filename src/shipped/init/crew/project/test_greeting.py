import unittest

from greeting import farewell, greeting


class Greeting(unittest.TestCase):
    def test_people_are_greeted_by_name(self):
        self.assertEqual(greeting("Ada"), "Hello, Ada!")
        self.assertEqual(farewell("Ada"), "Goodbye, Ada!")

    def test_somebody_without_a_name_is_greeted_all_the_same(self):
        self.assertEqual(greeting(""), "Hello!")


if __name__ == "__main__":
    unittest.main()
