"""Greets people by name."""


def greeting(name):
    return "Hello, " + name + "!"


def farewell(name):
    return "Goodbye, " + name + "!"
