def test_login():
    assert login("a", "b")
